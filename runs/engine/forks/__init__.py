"""Runs that begin again within another one's course: what that one did stands before them, and is done again only by
a person's word. The driver and the steps come in here."""
