"""Beginning again on a page: where, what would happen again, and what a run did before it is started anew."""
