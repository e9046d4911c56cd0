"""The engine: pure, and known to everybody above. Reading order: `journal.py` (the port), `steps/call.py` (one
call), `visit.py` (one visit), `driver.py` (one claim)."""
