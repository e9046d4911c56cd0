"""What serves `make up` only: the embedded PostgreSQL, the launcher, the restart. Nothing that runs elsewhere needs
it."""
