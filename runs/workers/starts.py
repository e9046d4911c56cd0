"""What time and the ends of others bring about for runs that have not begun: whose turn it is, and who came too late.
Costs what is due, not what exists."""

from __future__ import annotations

from runs.services.starts import turns
from runs.workers import timers


def sweep() -> int:
    """Look for both. Returns of how many there were, of the more frequent."""
    return max(
        timers.each(turns.ended, turns.pass_on, "it has ended, and others are queued behind it"),
        timers.each(turns.late, turns.give_up, "it was to have begun by now"),
    )
