"""The types of messages, their contents, and when failed ones are sent again. Pure: no Django, no I/O."""

from __future__ import annotations

import random

# Type → its meaning. The functions in sql/webhooks.sql write messages in the transaction of the change.
EVENTS = {
    "run.completed": "A run completed",
    "run.failed": "A run failed",
    "run.cancelled": "A run was cancelled",
    "run.waiting": "A run waits for people, a tool, or an event",
    "run.stopped": "A run stopped for an operator or for its budget",
    "run.outcome_unknown": "A call's outcome is unknown",
    "approval.opened": "An approval was opened",
    "approval.decided": "An approval was decided or closed in another way",
}
TEST = "webhook.test"

# The delays that Standard Webhooks recommends. A message is attempted ten times within about three days.
PAUSES_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
MAX_ATTEMPTS = len(PAUSES_SECONDS) + 1
JITTER = 0.2
# A webhook is paused if it has failed for this long.
PAUSE_AFTER_DAYS = 5
# Messages and attempts are removed after this time, including unsent ones of a paused webhook.
KEPT_DAYS = 30


def retry_seconds(attempts: int) -> float | None:
    """Return the delay after this many failed attempts; None after the last one."""
    if attempts >= MAX_ATTEMPTS:
        return None
    return PAUSES_SECONDS[attempts - 1] * random.uniform(1 - JITTER, 1 + JITTER)
