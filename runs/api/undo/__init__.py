"""Undoing a run's effects, over HTTP."""
