"""The kinds of event that tell of a question's time: what was settled about it when it was put, and what time brought
about since. The others are in `ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class ApprovalTimed(Event, fact="timed"):
    """Until when a question waits was settled in other words than a plain deadline, in the commit that put it: by a
    calendar (name and version; empty: around the clock), or with something else than a no when time runs out. Payload:
    the terms."""

    approval_id: str
    on_timeout: str
    calendar: str
    calendar_version: int
    n: int


class ApprovalReminded(Event, fact="reminded"):
    """People were reminded of a question, for the `n`-th time at its slot. `cause`: before (its deadline comes near),
    no_deadline (it waits until somebody answers; `deadline` is when they are reminded next)."""

    approval_id: str
    cause: str
    deadline: str
    n: int


class ApprovalEscalated(Event, fact="escalated"):
    """Nobody answered in time, so a question was put to a further queue besides, whose role may decide it until
    `deadline`; whoever was asked before still may. The `n`-th time at its slot. `cause`: timeout, away (everybody who
    decides there is away). Payload: when they are reminded."""

    approval_id: str
    to: str
    cause: str
    deadline: str
    n: int
