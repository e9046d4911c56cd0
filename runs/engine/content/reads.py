"""The cache of reads.

The cache is only an optimization, not a record. If an entry is missing or damaged, the tool is called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

MAX_CACHE = timedelta(days=7)
MAX_BYTES = 256 * 1024  # bytes per result


@dataclass(frozen=True, slots=True)
class KeptRead:
    """A cached read: its result, the time at which its call began, and the call (run and slot)."""

    result: Any
    at: datetime
    run_id: str
    slot: str


class Reads(Protocol):
    """A cache of reads. Its methods never raise: a failed `find` is a miss, and a failed `keep` is ignored."""

    async def find(self, key: bytes) -> KeptRead | None: ...

    def keep(self, key: bytes, tool: str, kept: KeptRead, lifetime: timedelta) -> None: ...


class NoReads:
    """A cache that stores nothing."""

    async def find(self, key: bytes) -> KeptRead | None:
        return None

    def keep(self, key: bytes, tool: str, kept: KeptRead, lifetime: timedelta) -> None:
        return None


@dataclass
class MemoryReads:
    """A cache of reads in memory."""

    kept: dict[bytes, tuple[KeptRead, timedelta]] = field(default_factory=dict)

    async def find(self, key: bytes) -> KeptRead | None:
        known = self.kept.get(key)
        return known[0] if known is not None and datetime.now(UTC) < known[0].at + known[1] else None

    def keep(self, key: bytes, tool: str, kept: KeptRead, lifetime: timedelta) -> None:
        """Keep the result, unless a newer one is already cached."""
        known = self.kept.get(key)
        if known is None or known[0].at < kept.at:
            self.kept[key] = kept, lifetime
