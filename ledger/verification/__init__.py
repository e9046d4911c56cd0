"""Verification of the record: of one run, of all runs, and of records without a run."""
