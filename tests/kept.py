"""Connections that the tests of one process use one after the other.

A new one reads the catalogue anew and compiles each function at its first call, which takes PostgreSQL longer than most
tests take. What a test may have left behind is put right in between.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import connection

_cleaners: dict[str, psycopg.Connection[Any]] = {}


def settle() -> None:
    """A test is over: Django's connection is kept, unless it was cut or is in the middle of something."""
    if connection.connection is None:
        return
    if connection.in_atomic_block or connection.needs_rollback or not connection.is_usable():
        connection.close()


def cleaner(url: str) -> psycopg.Connection[Any]:
    """A superuser's connection to this database for which no trigger holds."""
    link = _cleaners.get(url)
    if link is not None:
        try:
            link.execute("SELECT")
            return link
        except psycopg.OperationalError:
            link.close()  # the test cut it, or restarted the server
    link = _cleaners[url] = psycopg.connect(url, autocommit=True)
    link.execute("SET session_replication_role = replica")
    return link


def hang_up() -> None:
    """The last test is over: the database is to be dropped."""
    for link in _cleaners.values():
        link.close()
    _cleaners.clear()
    connection.close()
