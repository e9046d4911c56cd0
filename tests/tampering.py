"""SQL that changes rows outside the application, with and without the triggers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, models, transaction

from ledger.contents import ContentField, Stored


@contextmanager
def without_triggers() -> Iterator[Any]:
    """Open a cursor for which no trigger and no foreign key applies, as for a superuser."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield cursor
        cursor.execute("SET LOCAL session_replication_role = origin")


def tamper(statement: str, *values: Any) -> int:
    """Run SQL without triggers; return the number of rows."""
    with without_triggers() as cursor:
        cursor.execute(statement, values)
        count: int = cursor.rowcount
        return count


def run_sql(statement: str, *values: Any) -> list[Any]:
    """Run SQL that triggers may refuse; return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def as_stored(model: type[models.Model], **values: Any) -> dict[str, Any]:
    """Return values for `update`, in which content is stored as it is, past the application."""
    fields = {name: model._meta.get_field(name) for name in values}
    return {
        name: Stored(fields[name], value) if isinstance(fields[name], ContentField) else value
        for name, value in values.items()
    }
