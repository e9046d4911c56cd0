"""Before a try leaves: a permit of what all workers share. Refused for longer than a moment, the run waits by a timer
that names why, and holds no slot.

The permit comes before the intent, so a call that waits for one has nothing on record that could be in doubt; a repeat
has its permit before it is announced. What breaks here breaks nothing: an open breaker never fails a run.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, NoReturn

from runs.engine.journal import Batch, WaitSpec
from runs.engine.limits.permits import Refused
from runs.engine.tape import Attempt
from runs.engine.visit import Visit


async def park_for_limit(
    visit: Visit,
    slot: str,
    past: Attempt,
    refused: Refused,
    *,
    attempt: int,
    tool: str,
    title: str,
    call: dict[str, Any],
) -> NoReturn:
    """Free the worker's slot, and come back by a durable timer that says what is waited for."""
    n = past.waits_of("timer")
    seconds = max(1.0, refused.seconds) * (1.0 + random.random() / 10)
    why = {"limit": refused.key, "why": refused.why}
    deadline = visit.journal.now() + timedelta(seconds=seconds)
    wait = WaitSpec(visit.run_id, slot, attempt, "timer", n, deadline, {"tool": tool, "title": title, **why})
    await visit.commit(Batch([wait.opened({**why, **call})], wait=wait))
    visit.park(wait)
