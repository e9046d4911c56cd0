"""What a cache of reads keeps, and what the engine asks of one. What is in it is a guess that spares a call, never the
record: one that is damaged, late or away is a read that is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

LONGEST_CACHE = timedelta(days=7)
MOST_BYTES = 256 * 1024  # of one result


@dataclass(frozen=True, slots=True)
class KeptRead:
    """A read's result, when its call began, and which call made it."""

    result: Any
    at: datetime
    run_id: str
    slot: str


class Reads(Protocol):
    """Neither raises: what can't be found isn't there, what can't be kept is let go."""

    async def find(self, key: bytes) -> KeptRead | None: ...

    def keep(self, key: bytes, tool: str, kept: KeptRead, lifetime: timedelta) -> None: ...


class NoReads:
    """Keeps nothing."""

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
        """Keep the newer one."""
        known = self.kept.get(key)
        if known is None or known[0].at < kept.at:
            self.kept[key] = kept, lifetime
