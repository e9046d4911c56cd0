"""The engine without database access. Start with `journal.py` (its port), `call.py`, `visit.py` and `driver.py`."""
