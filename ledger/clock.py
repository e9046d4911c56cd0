"""The clock of leases, deadlines and records: only the database's is used."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.db import connection
from psycopg import DataError
from psycopg.types.datetime import TimeLoader, TimestamptzLoader

# The same time in microseconds, as a number for notifications and pages.
MOMENT = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def moment_of(text: str) -> int:
    """Parse a time sent by a client; 0 if invalid."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0


def database_now() -> datetime:
    """Return `clock_timestamp()`: `now()` is the transaction's start, which can predate a lock just won."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        at: datetime = cursor.fetchone()[0]
        return at


def lapse(seconds: float | timedelta | None) -> str:
    """Return a duration in its two largest units: `0.4 s`, `38 s`, `2 h 14 m`, `3 d 4 h`."""
    if seconds is None:
        return ""
    total = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    total = max(total, 0.0)
    if total < 0.95:
        return f"{round(total * 1000)} ms"
    if total < 9.95:
        return f"{total:.1f} s"
    if total < 60:
        return f"{round(total)} s"
    minutes, rest = divmod(round(total), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} m"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


class ReadableTime(TimestamptzLoader):
    """Clamps times outside Python's range to its limits, because one such row must not make a whole list unreadable."""

    timezone = UTC  # Django reads this attribute to see whether the loader is equivalent to its own.

    def load(self, data: Any) -> datetime:
        return self.read(str(data, "ascii"))

    def read(self, written: str) -> datetime:
        try:
            # Fast path for the server's usual format, ten times as fast: a long journal contains thousands of
            # timestamps.
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
    """Loads times of day that are outside Python's range: PostgreSQL has a 24:00."""

    def load(self, data: Any) -> time:
        try:
            return super().load(data)
        except DataError:
            return time.max


def read_every_time(*, connection: Any, **_: Any) -> None:
    """Replace Django's time loaders on a new connection; ours also return UTC (connection_created receiver)."""
    if connection.vendor == "postgresql":
        connection.connection.adapters.register_loader("time", ReadableHour)
        connection.connection.adapters.register_loader("timestamptz", ReadableTime)
