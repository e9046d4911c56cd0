"""One act on many runs: asking for it (`acts`), what would become of it (`forecast`), and doing it (`working`).

Same rules as `runs/services/command.py`; a batch's row is locked before its items', and those before any run's head."""
