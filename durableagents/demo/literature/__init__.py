"""A literature review over the documentation of what is installed: the corpus, its full-text library in PostgreSQL, what can
be done with it, and the two agents, one that reviews and one that reads a document for it."""
