"""A run's journal in PostgreSQL: claims, commits, lost answers, reads.
Only services and workers use it."""
