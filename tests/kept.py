"""Connections that the tests of one process use one after the other.

A new one reads the catalogue anew and compiles each function at its first call, which takes PostgreSQL longer than most
tests take. What a test may have left behind is put right in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psycopg
from django.db import connection

# How code outside of a test that has a database comes to it; tests/conftest.py says.
unblocked: Callable[[], AbstractContextManager[None]] = nullcontext
_cleaners: dict[str, psycopg.Connection[Any]] = {}
_first_queues: dict[str, list[str]] = {}


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


def first_queues(url: str) -> list[str] | None:
    """The rows of the queues that the migrations of another server's database made, as they were when it was first
    looked at; None for Django's own, where they can be made anew."""
    link, ours = cleaner(url), connection.settings_dict
    if (link.info.dbname, link.info.host) == (ours["NAME"], ours["HOST"]):
        return None
    if url not in _first_queues:
        rows = link.execute("SELECT to_jsonb(q)::text FROM approvals_queue q ORDER BY q.id").fetchall()
        _first_queues[url] = [row for (row,) in rows]
    return _first_queues[url]


def hang_up() -> None:
    """The last test is over: the database is to be dropped."""
    for link in _cleaners.values():
        link.close()
    _cleaners.clear()
    connection.close()
