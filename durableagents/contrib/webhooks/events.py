"""The types of messages, what they carry, and when a failed one is sent again. Pure: no Django, no I/O."""

from __future__ import annotations

import random

# Type → its meaning. sql/webhooks.sql writes them in the transaction of the change itself.
EVENTS = {
    "run.completed": "A run completed",
    "run.failed": "A run failed",
    "run.cancelled": "A run was cancelled",
    "run.waiting": "A run waits for people, a tool, or an event",
    "run.stopped": "A run stopped for an operator or for its budget",
    "run.outcome_unknown": "A call's outcome is unknown",
    "approval.opened": "An approval was opened",
    "approval.decided": "An approval was decided or otherwise closed",
}
TEST = "webhook.test"

# The pauses that Standard Webhooks recommends: a message is tried ten times within about three days.
PAUSES_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
MAX_ATTEMPTS = len(PAUSES_SECONDS) + 1
JITTER = 0.2
# Failures for so long pause a webhook.
PAUSE_AFTER_DAYS = 5
# Messages and their attempts are kept so long, also unsent ones of a paused webhook.
KEPT_DAYS = 30


def retry_seconds(attempts: int) -> float | None:
    """Return the delay after so many failed attempts; None after the last attempt."""
    if attempts >= MAX_ATTEMPTS:
        return None
    return PAUSES_SECONDS[attempts - 1] * random.uniform(1 - JITTER, 1 + JITTER)
