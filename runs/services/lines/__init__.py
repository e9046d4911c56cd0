"""Runs that do the same work: a run, what it was begun again as and from, and what each of them went on as."""
