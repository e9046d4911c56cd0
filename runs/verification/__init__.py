"""Verification of a run's own tables against its journal; see ledger/verification/runs.py."""
