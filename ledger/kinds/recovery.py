"""The kinds of event that tell of a worker's loss, of a run that was given back to the pool, and of how people come to
say what became of a call of which nobody knows: what one of two says, and what the other side answers whom they have
asked. What is settled is a `ToolReconciled`; that and the others are in `ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


class WorkerLost(Event):
    """The run was taken from the worker that drove it. `is_counted`: proven dead, in a step with nothing written since
    its claim. `cause`: proof, suspicion, host_gone, operator,
    requeued; `proof` says it in words. `reached`: claimed,
    intent_durable, result_durable, visit_entered, wait_opened; `call` is the slot of a call in doubt. `silent_ms`: from
    the worker's last sign of life to this event."""

    worker: str
    epoch: int
    pid: int
    proof: str
    is_counted: bool
    deaths: int
    cause: str = "proof"
    host: str = ""
    reached: str = ""
    call: str | None = None
    silent_ms: int | None = None


class RunRequeued(Event):
    """An operator gave the run back to the pool: where a `worker` (its incarnation) had it, the next event says that it
    lost it; empty: nobody had, and it is to be taken now. Payload: the justification."""

    by: str
    role: str
    worker: str


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
