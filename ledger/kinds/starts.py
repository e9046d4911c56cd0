"""The kinds of event that tell when a run may begin, and after which others. The others are in `ledger/events.py`,
which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class StartPlanned(Event):
    """With what the run was accepted besides its input: the key of the caller's business and the rule for the case that
    a run of that key lives, from when it may begin and by when it must have (ISO 8601; empty: not said), the run of its
    key that it came after (None: none lived), and the schedule that it is of, with the time that was planned."""

    business_key: str = ""
    on_conflict: str = ""
    start_at: str = ""
    start_before: str = ""
    behind: str | None = None
    schedule: str = ""
    planned_at: str = ""


class RunAdmitted(Event):
    """Its turn has come: no run of its key that came before it is left. `after` is the one that ended last; None: it
    is not known."""

    by: str
    after: str | None
