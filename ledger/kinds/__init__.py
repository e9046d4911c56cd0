"""Kinds of event that have a file of their own. All are known to `ledger/events.py`."""
