"""For `make up` only: the embedded PostgreSQL, the launcher, the restart."""
