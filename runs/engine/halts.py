"""Port to check for a halt just before a call without a fresh intent is sent: a read, a retry, a resumed call."""

from __future__ import annotations

# A call is sent without asking again for this long after its intent, or after the state was read.
FRESH_SECONDS = 1.5


class Halts:
    """Default: nothing is halted. A worker's are in runs/services/halts/known.py.
    While nothing is halted as far as known, a call is sent without asking until FRESH_SECONDS after `read_at`."""

    is_any_known = False
    read_at = float("inf")  # by the monotonic clock

    def must_ask(self, key: str, cleared_at: float) -> bool:
        """Return whether to ask the database before a call under `key`, last cleared at `cleared_at` (monotonic)."""
        return False

    async def is_halted(self, run_id: str, key: str) -> bool:
        return False
