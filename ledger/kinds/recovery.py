"""The kinds of event that tell of a worker's loss, and of a run that was given back to the pool. The others are in
`ledger/events.py`, which knows these too."""

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
