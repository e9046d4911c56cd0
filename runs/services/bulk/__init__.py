"""Bulk actions on many runs: requests (`acts`), forecast (`forecast`), execution (`working`).
Rules as in `runs/services/command.py`; a batch's row is locked before its items, and those before any run's head."""
