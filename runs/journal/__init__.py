"""A run's journal in PostgreSQL: claims, commits, lost answers, reads. Used by services and workers only."""
