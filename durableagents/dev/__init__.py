"""Modules for `make up` only: the embedded PostgreSQL, the launcher and the restart."""
