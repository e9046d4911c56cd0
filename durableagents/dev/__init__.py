"""Modules only for `make up`: the embedded PostgreSQL, the launcher and the restart."""
