"""How far a question has come in time, by its journal: for deciding, for pages, for verifying."""
