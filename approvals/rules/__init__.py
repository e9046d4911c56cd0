"""Policies as they stand in the database, what their conditions mean and what they say of a call. Whoever changes,
shows or checks policies comes in."""
