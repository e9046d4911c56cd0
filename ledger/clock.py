"""The only clock that leases, deadlines and records read: the database's."""

from __future__ import annotations

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """`clock_timestamp()`: unlike `now()` it is not the transaction's start, which can be older than a lock just won."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        at: datetime = cursor.fetchone()[0]
        return at
