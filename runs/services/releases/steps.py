"""What a worker knows of releases, for runs that its runs start as steps or hand off to: at most a few seconds old."""

from __future__ import annotations

import time
from typing import Any

from psycopg import AsyncConnection

from ledger.protected import is_authentic
from runs.engine.agents import registry
from runs.protected import gate_proofs

FRESH_SECONDS = 2.0
_STANDING = f"""
    SELECT ARRAY(SELECT agent || '@' || version FROM runs_versiongate WHERE is_closed),
           (SELECT coalesce(jsonb_object_agg(agent, from_version), '{{}}') FROM runs_ramp WHERE ended_at IS NULL),
           {gate_proofs()}"""


class Known:
    """As read last. Steps stay on the older side of a ramp: what it assigns and judges are starts from outside."""

    def __init__(self) -> None:
        self._read_at = float("-inf")

    async def refresh_with(self, link: AsyncConnection[Any]) -> None:
        """Read it, unless that was done a moment ago."""
        if time.monotonic() - self._read_at >= FRESH_SECONDS:
            row = await (await link.execute(_STANDING)).fetchone()
            assert row is not None
            if is_authentic(row[2]):  # otherwise what was read last counts
                registry.steer(closed=row[0], kept=row[1])
            self._read_at = time.monotonic()
