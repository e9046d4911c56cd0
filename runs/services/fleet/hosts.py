"""An operator's word on a host, and on a worker: that nothing runs on it any more; that it is to let go of what it has.

Each leaves an act record. Runs of a host that was declared dead go on elsewhere without waiting for the TTL, and unsafe
calls that it may have sent may be sent again where a person settles them as *it did not happen*: also those of a host
that the watchdog has given up already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Func, Q, QuerySet
from django.db.models.functions import Coalesce

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from ledger.web.roles import OPERATOR
from runs.models import Incident, Process

# A process whose last heartbeat is younger than this can't be declared dead: it says otherwise.
SILENT_SECONDS = 10


class ShowsLife(DurableAgentsError):
    """Something of the host has announced itself a moment ago."""

    status, code, title = 409, "host-alive", "The host shows signs of life"

    def __init__(self, host: str, alive: Sequence[Process]) -> None:
        names = ", ".join(f"{p.kind} {p.pid}" for p in alive[:5])
        super().__init__(
            f"Host {host!r} shows signs of life within the last {SILENT_SECONDS} s ({names}): stop it first."
        )


class NotToDrain(DurableAgentsError):
    """The process drives no runs, has ended, or drains already."""

    status, code, title = 409, "not-to-drain", "The worker can't be drained"

    def __init__(self, process: Process, why: str) -> None:
        super().__init__(f"Process {process.pid} on {process.host} {why}.")


def may_act(by: Actor, what: str) -> None:
    """Raises Forbidden for whoever does not run the fleet."""
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden(f"Only an operator may {what}.")


def declarable() -> QuerySet[Process]:
    """Processes of hosts that may be declared dead, as far as their rows tell: on record as alive, or given up without
    proof."""
    given_up = Q(end_cause__in=[Incident.Cause.SUSPICION, Incident.Cause.HOST_GONE])
    return Process.objects.filter(Q(ended_at=None) | given_up)


@transaction.atomic
def declare_dead(host: str, *, by: Actor, justification: str) -> int:
    """Say that nothing runs on a host any more; how many processes that was said of. Raises Forbidden, NotFound,
    ShowsLife, JustificationRequired.

    What is looked at is what is written: a beat, or proof that another one found, comes before or after all of this.
    """
    may_act(by, "declare a host dead")
    why = justified("declare_dead", justification)
    held = list(declarable().filter(host=host).order_by("pk").select_for_update().values_list("pk", flat=True))
    rows = (
        declarable()
        .filter(pk__in=held)  # as they stand now that they are held
        .annotate(
            silence=Func(
                F("last_heartbeat_at"), template="extract(epoch FROM clock_timestamp() - %(expressions)s)::float"
            )
        )
    )
    processes = list(rows)
    if not processes:
        raise NotFound("host with a process that is on record as alive or given up", host)
    if alive := [p for p in processes if p.silence < SILENT_SECONDS]:
        raise ShowsLife(host, alive)
    word = {
        "end_cause": Incident.Cause.OPERATOR,
        "end_proof": f"an operator declared that nothing runs on {host} any more",
    }
    Process.objects.filter(pk__in=[p.pk for p in processes]).update(
        ended_at=Coalesce("ended_at", database_now()), **word
    )
    acted(
        "declare_dead",
        by=by,
        subject=host,
        justification=why,
        before={"processes": [_shown(p) for p in processes]},
        after={"end_cause": str(Incident.Cause.OPERATOR)},
    )
    return len(processes)


@transaction.atomic
def drain(process_id: UUID, *, by: Actor, justification: str) -> Process:
    """Ask a worker to claim nothing more, to hand each of its runs back at its next step boundary, and to end; within
    about three seconds it begins. Whoever looks after it starts another in its place. Raises Forbidden, NotFound,
    NotToDrain, JustificationRequired."""
    may_act(by, "drain a worker")
    why = justified("drain", justification)
    process = Process.objects.select_for_update().filter(pk=process_id).first()
    if process is None:
        raise NotFound("process", process_id)
    if process.kind != "worker":
        raise NotToDrain(process, f"is a {process.kind}, which drives no runs")
    if process.ended_at is not None:
        raise NotToDrain(process, "has ended")
    if process.drain_asked_at is not None:
        raise NotToDrain(process, f"was asked at {process.drain_asked_at.isoformat()} already")
    process.drain_asked_at = database_now()
    process.save(update_fields=["drain_asked_at"])
    acted(
        "drain",
        by=by,
        subject=f"worker {process.pid} on {process.host}",
        justification=why,
        before={"processes": [_shown(process)]},
        after={"drain_asked_at": process.drain_asked_at.isoformat()},
    )
    return process


def _shown(process: Process) -> dict[str, Any]:
    """A process as the record names it."""
    return {
        "id": str(process.pk),
        "kind": process.kind,
        "pid": process.pid,
        "last_heartbeat_at": process.last_heartbeat_at.isoformat(),
        "end_cause": process.end_cause,
    }
