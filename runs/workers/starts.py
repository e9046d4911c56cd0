"""Start what is due: queued runs and late starts; costs what is due, not what exists."""

from __future__ import annotations

from runs.services.starts import turns
from runs.workers import timers


def sweep() -> int:
    """Check for all of it; return how many runs the more frequent checks found."""
    return max(
        timers.act_on_each(turns.ended, turns.pass_on, "it has ended, and others are queued behind it"),
        timers.act_on_each(turns.late, turns.give_up, "it was to have begun by now"),
    )
