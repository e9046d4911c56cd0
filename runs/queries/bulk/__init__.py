"""Which runs an act on many is for, and how far it has come."""
