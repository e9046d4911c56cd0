"""A run's journal in PostgreSQL: claims, the one write of a step, lost answers, reading back. Services and workers come
in; no face does."""
