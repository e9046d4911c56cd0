"""The kinds of event that tell how two people come to say what became of a call of which nobody knows. What is settled
is a `ToolReconciled`; the others are in `ledger/events.py`, which knows these too."""

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
