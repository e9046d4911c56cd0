"""The only clock that leases, deadlines and records read: the database's."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any

from django.db import connection
from psycopg import DataError
from psycopg.types.datetime import TimeLoader, TimestamptzLoader

# The same as a number, as notifications and pages carry it: microseconds.
MOMENT = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def moment_of(text: str) -> int:
    """A moment that somebody names; 0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0


def database_now() -> datetime:
    """`clock_timestamp()`: unlike `now()` it is not the transaction's start, which can be older than a lock just
    won."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        at: datetime = cursor.fetchone()[0]
        return at


class ReadableTime(TimestamptzLoader):
    """PostgreSQL's calendar is longer than Python's. A time beyond it is read as the last (or first) one there is: one
    such row must not make every list unreadable that it is in."""

    timezone = UTC  # what Django looks at, to see whether this loader is as good as its own

    def load(self, data: Any) -> datetime:
        return self.read(str(data, "ascii"))

    def read(self, written: str) -> datetime:
        """A moment as the server writes it."""
        try:
            # What the server nearly always writes, read ten times as fast: a long journal is thousands of times.
            at = datetime.fromisoformat(written)
            if at.tzinfo is not None:
                return at if at.tzinfo is UTC else at.astimezone(UTC)
        except ValueError:
            pass
        data = written.encode()
        try:
            return super().load(data).astimezone(UTC)
        except (DataError, OverflowError):
            edge = datetime.min if data.endswith(b"BC") or data.startswith(b"-") else datetime.max
            return edge.replace(tzinfo=UTC)


class ReadableHour(TimeLoader):
    """The same for a time of day: PostgreSQL's day has a 24:00."""

    def load(self, data: Any) -> time:
        try:
            return super().load(data)
        except DataError:
            return time.max


def read_every_time(*, connection: Any, **_: Any) -> None:
    """connection_created receiver. In Django's loader's place, which reads in UTC as well."""
    if connection.vendor == "postgresql":
        connection.connection.adapters.register_loader("time", ReadableHour)
        connection.connection.adapters.register_loader("timestamptz", ReadableTime)
