"""The pure engine. Start with `journal.py` (port), `steps/call.py`, `visit.py` and `driver.py`."""
