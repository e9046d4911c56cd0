"""The kinds of event that tell how people come to say what became of a call of which nobody knows: what one of two
says, and what the other side answers whom they have asked. What is settled is a `ToolReconciled`; the others are in
`ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class OutcomeProposed(Event, fact="proposed"):
    """Somebody said what became of a call, where two people settle that: it counts once a second one says the same.
    `verdict`: happened, did_not. `says` is the digest of that and of the receipt, `person` the account, `question` the
    number of the wait that it answers. Payload: receipt and justification. The `n`-th about the attempt."""

    tool: str
    verdict: str
    says: str
    by: str
    role: str
    person: int
    question: int
    n: int = 0


class OutcomeWithdrawn(Event, fact="proposal_withdrawn"):
    """Whoever said it takes it back. `n` is the proposal's. Payload: the justification."""

    by: str
    role: str
    n: int = 0


class UpstreamAsked(Event, fact="upstream_asked"):
    """A person wants the other side asked once more what became of the call, by its tool's hook; its worker does that.
    Payload: the justification. The `n`-th about the attempt."""

    by: str
    role: str
    n: int = 0


class UpstreamTold(Event, fact="upstream_told"):
    """What the other side said: `happened`, `did_not`, or `nothing` where it gave no answer that can be used. It
    settles nothing: whoever asked reads it. Payload of what happened: the result. `n` is that of the asking."""

    answer: str
    n: int = 0
