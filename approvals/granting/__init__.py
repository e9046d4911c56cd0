"""Allowing the same again: giving a standing grant, using it, taking it back, and holding it against the journal."""
