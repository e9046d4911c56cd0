"""The port by which the engine asks, just before a call leaves, whether it is halted. Its intent was made where no halt
stood in the way; but what has no fresh intent (a read, a try once more, a call whose worker was stopped in between) is
asked about."""

from __future__ import annotations

# So long after its intent, or after what is known was read, a call leaves without asking anew.
FRESH_SECONDS = 1.5


class Halts:
    """Nothing is halted. A worker's are in runs/services/halts/known.py."""

    def must_ask(self, key: str, cleared_at: float) -> bool:
        """Whether the database has to be asked before something leaves under a key, such as tool:charge. `cleared_at`:
        when it was last seen, by the monotonic clock, that it may. Costs nothing."""
        return False

    async def is_halted(self, run_id: str, key: str) -> bool:
        return False
