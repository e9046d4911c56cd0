"""A question's progress in time by its journal, for decisions, pages and verification."""
