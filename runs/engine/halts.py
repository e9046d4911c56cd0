"""Port through which the engine checks for a halt just before a call is sent. A fresh intent was already checked.
This is for calls without one: reads, retries, and calls whose worker was stopped in between."""

from __future__ import annotations

# A call is sent without asking again for this long after its intent, or after the state was read.
FRESH_SECONDS = 1.5


class Halts:
    """Default: nothing is halted. A worker's are in runs/services/halts/known.py."""

    def must_ask(self, key: str, cleared_at: float) -> bool:
        """Return whether the database must be asked before a call under a key, such as tool:charge. Costs nothing.
        `cleared_at` is when it was last known to be permitted, by the monotonic clock.
        """
        return False

    async def is_halted(self, run_id: str, key: str) -> bool:
        return False
