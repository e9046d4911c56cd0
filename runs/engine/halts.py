"""Port to check for a halt just before a call is sent."""

from __future__ import annotations

# A call is sent without asking again for this long after its intent, or after the state was read.
FRESH_SECONDS = 1.5


class Halts:
    """Default: nothing is halted. A worker's are in runs/services/halts/known.py; `Visit.is_held_back` asks them."""

    is_any_known = False
    read_at = float("inf")  # by the monotonic clock

    def is_about(self, key: str) -> bool:
        """Return whether a known halt may block a call under `key`."""
        return False

    async def is_halted(self, run_id: str, key: str) -> bool:
        return False
