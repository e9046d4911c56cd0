"""The engine without database access.

To read it, start with `journal.py` (its port), `call.py`, `visit.py` and `driver.py`.
"""
