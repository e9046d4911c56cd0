"""The interface for checking, just before a call is sent, whether it is halted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

if TYPE_CHECKING:
    from runs.engine.runtime import Control

# A call is sent without another query for this long after its intent was written or the halts were read.
FRESH_SECONDS = 1.5
RING = "halts"  # the notification that makes workers read the halts at once


class Halts:
    """The halts known to a worker. This base class halts nothing. `Visit.is_held_back` uses them."""

    is_any_known = False
    read_at = float("inf")  # by the monotonic clock

    def lend(self, pool: Any) -> Self:
        """Set the connection pool for queries, and return self."""
        return self

    async def refresh(self, link: Any, active: Mapping[UUID, Control]) -> None:
        """Read the halts over this connection, and stop those of the worker's active runs to which they apply."""

    def is_about(self, key: str) -> bool:
        """Return whether a known halt may apply to calls under `key`."""
        return False

    async def is_halted(self, run_id: str, key: str) -> bool:
        """Return whether a run, or its call under this key, is halted now."""
        return False
