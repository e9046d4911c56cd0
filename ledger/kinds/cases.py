"""The kinds of event that tell of what people do with a question before it is decided. The others are in
`ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class PlanAmended(Event, fact="amended"):
    """A person put other arguments in the place of those that a gate had asked about. Its question (`approval_id`, with
    the plan that they had read) is over; `next` asks for the same call with theirs, and where they may approve that,
    their yes to it follows. Payload: the justification, the arguments, and `changes`: by field what it was and what it
    is."""

    approval_id: str
    plan_hash: str
    by: str
    role: str
    next: str
    n: int = 0
