"""A literature review of the documentation of installed packages.

It consists of the corpus, its full-text library in PostgreSQL, the tools that use it, and two agents: one writes the
review, and one reads a document for it."""
