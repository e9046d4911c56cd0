"""Checks DATABASE_URL and DATABASE_DIRECT_URL.
Behind a pooler, the latter is needed for listening, session locks and steps."""

from __future__ import annotations

from typing import Any

import psycopg
from django.conf import settings
from django.db import OperationalError, connection

from ledger import schema
from runs.connections import dsn

# PgBouncer's error for `options` from a client that expects the server itself.
_NOT_FOR_POOLERS = "unsupported startup parameter"
_WHERE = "SELECT pg_backend_pid(), current_database(), pg_postmaster_start_time()"
_LIMITS = ("lock_timeout", "idle_in_transaction_session_timeout")
_SEE = "(docs/how-to/postgresql-and-pgbouncer.md)"
_DIRECT = f"DATABASE_DIRECT_URL points to a pooler: it must name the server itself {_SEE}"


def refusal() -> str | None:
    """Return why this process must not use its database, or None.
    Raises OperationalError during an outage."""
    try:
        problem = misled()
    except OperationalError as error:
        if _NOT_FOR_POOLERS not in str(error):
            raise
        return f"DATABASE_URL points to a pooler: set DATABASE_DIRECT_URL to the server itself {_SEE}"
    except psycopg.OperationalError as error:
        if _NOT_FOR_POOLERS in str(error):
            return _DIRECT
        raise OperationalError(f"DATABASE_DIRECT_URL: {error}") from error
    finally:
        connection.close()
    return problem or schema.refusal()


def misled() -> str | None:
    """Return the problem with the two addresses, or None.
    Raises OperationalError (Django's or psycopg's)."""
    with connection.cursor() as cursor:
        cursor.execute(_WHERE)
        pid, *there = cursor.fetchone()
        is_pooled = pid != connection.connection.info.backend_pid
        limits = {name: _setting_of(cursor, name) for name in _LIMITS}
    if settings.DURABLEAGENTS.database_direct_url is None:
        # A session pooler merely hides the pid. A transaction pooler is detected because the pid changes.
        return (
            f"DATABASE_URL points to a pooler in transaction mode: set DATABASE_DIRECT_URL to the server itself {_SEE}"
            if is_pooled and _wanders()
            else None
        )
    with psycopg.connect(dsn(name="durableagents check"), autocommit=True) as direct:
        row = direct.execute(_WHERE).fetchone()
        assert row is not None
        if row[0] != direct.info.backend_pid and _wanders():
            return _DIRECT
        if list(row[1:]) != there:
            return f"DATABASE_URL and DATABASE_DIRECT_URL point to different databases ({there[0]} and {row[1]}) {_SEE}"
    unlimited = [name for name, value in limits.items() if value == "0"]
    if unlimited:
        missing = " and no ".join(unlimited)
        return f"connections of DATABASE_URL have no {missing}: give the role its limits with ALTER ROLE {_SEE}"
    return None


def _setting_of(cursor: Any, name: str) -> str:
    cursor.execute(f"SHOW {name}")
    return str(cursor.fetchone()[0])


def _wanders() -> bool:
    """Return whether a session's transactions use several server connections.
    This occupies another connection."""
    address = dsn(name="durableagents check")
    with psycopg.connect(address, autocommit=True) as one, psycopg.connect(address) as other:
        before = _pid(one)
        # In transaction mode, the pooler reuses either the connection that was just freed, or the next one in turn.
        held = _pid(other)
        return held == before or _pid(one) != before


def _pid(link: psycopg.Connection[Any]) -> int:
    row = link.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])
