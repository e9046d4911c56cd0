"""Handing something to a run that goes on, on a page of its own: what it would make of it, and the act."""
