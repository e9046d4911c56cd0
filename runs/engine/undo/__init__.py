"""How an author says that an effect can be undone."""
