"""Settling an unknown outcome by two people: what one says waits on the journal for a second one who says the same.
The settling itself is `runs/services/reconciling.py`."""
