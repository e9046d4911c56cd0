"""The processes that drive runs; only their commands import from here."""
