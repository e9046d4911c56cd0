"""Cron lines, read in the same way as Debian's cron, by cronsim. Pure.

`L`, `LW` and `#` are supported. If both day fields are restricted, either may match. A line with a fixed minute and
hour names wall clock times: if DST skips such a time, it moves to the end of the gap, and if one occurs twice, the
first counts. Any other line follows elapsed time: it skips times in a gap, and matches both occurrences of a repeated
hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ledger.zones import zones

_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31"),
    ("month", "1 to 12 or jan to dec"),
    ("day of the week", "0 to 7 or sun to sat"),
)
_REFERENCE = datetime(2024, 1, 1, tzinfo=UTC)


class InvalidCron(ValueError):
    """The text is not a cron line, or has no date within fifty years."""


class UnknownZone(ValueError):
    """There is no time zone of that name."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid cron line of five fields."""

    line: str

    def after(self, moment: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Yield the matching times after `moment` in ascending order, in UTC."""
        # cronsim starts from the wall clock time. In an hour that occurs twice, it may begin before `moment`.
        found = (each.astimezone(UTC) for each in CronSim(self.line, moment.astimezone(zone)))
        return (each for each in found if each > moment)


def read(line: str) -> Cron:
    """Parse a cron line. Raises InvalidCron."""
    fields = _SHORTHANDS.get(line.strip().lower(), line).split()
    if len(fields) != len(_FIELDS):
        raise InvalidCron(f"has {len(fields)} fields instead of five: minute, hour, day, month, day of the week")
    cron = Cron(" ".join(fields))
    if _comes(cron.line):
        return cron
    for n, (text, (name, allowed)) in enumerate(zip(fields, _FIELDS, strict=True)):
        if not _comes(" ".join(text if n == at else "*" for at in range(len(fields)))):
            raise InvalidCron(f"{name}: {text[:20]!r} is not a value, list, range or step within {allowed}")
    raise InvalidCron("never comes: none of these months has that day")


def _comes(line: str) -> bool:
    try:
        return next(CronSim(line, _REFERENCE), None) is not None
    except (CronSimError, ValueError):  # int() raises for texts of more than 4,300 digits
        return False


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by name. Raises UnknownZone."""
    if name not in zones():
        raise UnknownZone(f"{name[:60]!r} is not a time zone")
    return ZoneInfo(name)
