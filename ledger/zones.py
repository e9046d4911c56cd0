"""Time zones by their IANA names. Pure."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

_OF_A_MACHINE = ("right/", "posix/")


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name. Raises ValueError if there is none."""
    try:
        if not name or name.startswith((".", "/")) or "\x00" in name:
            raise ValueError(name)
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f"{name!r} is not an IANA time zone name, such as Europe/Berlin") from error


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """Return the zone names with the same meaning everywhere: without machine-local names and leap-second zones."""
    no = ("localtime", "posixrules", "Factory")
    return frozenset(name for name in available_timezones() if name not in no and not name.startswith(_OF_A_MACHINE))
