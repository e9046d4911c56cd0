"""The engine: pure. Reading order: `journal.py` (the port), `replay.py` (one visit), `calls.py` (one call), `drive.py` (one claim)."""
