"""A cache of reads without a database, for tests and for trying agents out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from runs.engine.content.reads import KeptRead


@dataclass
class MemoryReads:
    """A cache of reads in memory."""

    kept: dict[bytes, tuple[KeptRead, timedelta]] = field(default_factory=dict)

    async def find(self, key: bytes) -> KeptRead | None:
        """What is kept and not too old."""
        known = self.kept.get(key)
        return known[0] if known is not None and datetime.now(UTC) < known[0].at + known[1] else None

    def keep(self, key: bytes, tool: str, kept: KeptRead, lifetime: timedelta) -> None:
        """Keep the newer one."""
        known = self.kept.get(key)
        if known is None or known[0].at < kept.at:
            self.kept[key] = kept, lifetime
