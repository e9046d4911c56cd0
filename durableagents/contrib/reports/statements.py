"""Runs a report's statements: read-only, with a time limit each, and limited to the runs that the reader may see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db import DatabaseError, connection, transaction
from psycopg.errors import QueryCanceled

from ledger.errors import DurableAgentsError
from ledger.web.seeing.viewers import Viewer, viewer
from runs.seen import is_of_seen, is_seen

# Limit for one statement. Pages and the API wait for a statement this long, so the limit is below
# DURABLEAGENTS_WEB_STATEMENT_SECONDS.
WEB_SECONDS = 12
# Limit for reports made by schedule or from a shell.
SHELL_SECONDS = 300
_WORK_MEM = "64MB"
_SET = "SELECT set_config('statement_timeout', %s, true), set_config('work_mem', %s, true)"
_seconds: ContextVar[int] = ContextVar("seconds", default=WEB_SECONDS)

Params = Mapping[str, Any]


class ReportTooLarge(DurableAgentsError):
    """A statement of a report exceeded its time limit."""

    status, code, title = 422, "report-too-large", "The report takes too long"

    def __init__(self, seconds: int) -> None:
        super().__init__(
            f"A query of this report took longer than {seconds} seconds. Choose a shorter period, or make the report "
            "in a shell, where it gets more time: `manage.py reports run`."
        )


@contextmanager
def in_seconds(seconds: int) -> Iterator[None]:
    """Set the time limit for statements inside the block."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


@contextmanager
def reading() -> Iterator[None]:
    """Open a read-only transaction in which each statement has the time limit. Raises ReportTooLarge."""
    seconds = _seconds.get()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('statement_timeout'), current_setting('work_mem')")
            before = cursor.fetchone()
            cursor.execute(_SET, [f"{seconds}s", _WORK_MEM])
            yield
            cursor.execute(_SET, before)  # restores the limits of a caller's transaction
    except DatabaseError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise ReportTooLarge(seconds) from error
        raise


def rows_of(sql: str, params: Params) -> list[tuple[Any, ...]]:
    """Return the rows of a statement with named parameters."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def seen_run(alias: str = "r", who: Viewer | None = None) -> tuple[str, dict[str, Any]]:
    """Return the SQL condition that selects visible rows of runs_run, and its named parameters."""
    return _named(*is_seen(alias, who or viewer()))


def of_seen_run(column: str, who: Viewer | None = None) -> tuple[str, dict[str, Any]]:
    """Return the SQL condition that selects another table's rows whose run is visible, and its named parameters."""
    return _named(*is_of_seen(column, who or viewer()))


def _named(text: str, values: list[Any]) -> tuple[str, dict[str, Any]]:
    named = {f"viewer_{n}": value for n, value in enumerate(values)}
    for name in named:
        text = text.replace("%s", f"%({name})s", 1)
    return text, named


# Finds the first row of a table that was written at or after a given time, by a binary search over row numbers. Rows
# are numbered as they are written, so the search reads about forty rows, and needs no index by time. Rows of concurrent
# transactions can be out of order, so callers begin a little earlier and compare the times themselves.
_FIRST = """
    WITH RECURSIVE halving(low, high) AS (
        SELECT coalesce(min(id), 0), coalesce(max(id), -1) + 1 FROM {table}
        UNION ALL
        SELECT CASE WHEN (SELECT t.at FROM {table} t WHERE t.id >= (low + high) / 2 ORDER BY t.id LIMIT 1) < %(moment)s
                    THEN (low + high) / 2 + 1 ELSE low END,
               CASE WHEN (SELECT t.at FROM {table} t WHERE t.id >= (low + high) / 2 ORDER BY t.id LIMIT 1) < %(moment)s
                    THEN high ELSE (low + high) / 2 END
        FROM halving WHERE low < high)
    SELECT min(low) FROM halving WHERE low >= high"""


def first_id(table: str, moment: Any) -> int:
    """Return the number of the first row of `table` at or after a given time.

    If there is none, the result is greater than the numbers of all rows."""
    ((found,),) = rows_of(_FIRST.format(table=table), {"moment": moment})
    return int(found)
