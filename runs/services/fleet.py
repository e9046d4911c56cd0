"""Actions on hosts and workers: declaring a host dead, draining, requeueing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Func, Q, QuerySet
from django.db.models.functions import Coalesce
from pydantic import Field

from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, NotFound
from ledger.web.roles import OPERATOR
from runs.fleet.incidents import progress_at_loss
from runs.models import Incident, Process, Run
from runs.services.allowed import IN_POOL
from runs.services.bodies import SteerBody
from runs.services.command import Act, make_ready, save


class DeadBody(SteerBody):
    """A declaration that nothing runs on a host any more. Explain in the justification how you know."""

    host: Annotated[str, Field(min_length=1, max_length=255, description="Name as listed by GET /api/v1/fleet.")]


# A process whose last heartbeat is more recent than this can't be declared dead.
SILENT_SECONDS = 10


class ShowsLife(DurableAgentsError):
    """A process of the host sent a heartbeat recently."""

    status, code, title = 409, "host-alive", "The host is alive"

    def __init__(self, host: str, alive: Sequence[Process]) -> None:
        names = ", ".join(f"{p.kind} {p.pid}" for p in alive[:5])
        super().__init__(
            f"Processes of host {host!r} sent a heartbeat within the last {SILENT_SECONDS} s ({names}). "
            "Stop them first."
        )


class NotToDrain(DurableAgentsError):
    """The process drives no runs, has ended, or was already asked to drain."""

    status, code, title = 409, "not-to-drain", "The worker can't be drained"

    def __init__(self, process: Process, why: str) -> None:
        super().__init__(f"Process {process.pid} on {process.host} {why}.")


def may_act(by: Actor, what: str) -> None:
    """Check that the actor is an operator or a shell user. Raises Forbidden."""
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden(f"Only an operator may {what}.")


def declarable() -> QuerySet[Process]:
    """Return processes that can be declared dead with their host.
    They are recorded as alive, or were given up without proof."""
    given_up = Q(end_cause__in=[Incident.Cause.SUSPICION, Incident.Cause.HOST_GONE])
    return Process.objects.filter(Q(ended_at=None) | given_up)


@transaction.atomic
def declare_dead(host: str, *, by: Actor, justification: str) -> int:
    """Declare that nothing runs on a host any more.
    Returns the number of the host's processes. Their rows are locked, so that a heartbeat or a proof of death comes
    either before or after this act. Raises Forbidden, NotFound, ShowsLife, JustificationRequired."""
    may_act(by, "declare a host dead")
    why = justified("declare_dead", justification)
    held = list(declarable().filter(host=host).order_by("pk").select_for_update().values_list("pk", flat=True))
    rows = (
        declarable()
        .filter(pk__in=held)  # read again under the locks
        .annotate(
            silence=Func(
                F("last_heartbeat_at"), template="extract(epoch FROM clock_timestamp() - %(expressions)s)::float"
            )
        )
    )
    processes = list(rows)
    if not processes:
        raise NotFound("host with a process recorded as alive or given up", host)
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
        before={"processes": [_process_row(p) for p in processes]},
        after={"end_cause": str(Incident.Cause.OPERATOR)},
    )
    return len(processes)


@transaction.atomic
def drain(process_id: UUID, *, by: Actor, justification: str) -> Process:
    """Ask a worker to stop claiming, release its runs at step boundaries, and end.
    Another worker then replaces it. The worker begins to drain within about three seconds. Raises Forbidden, NotFound,
    NotToDrain, JustificationRequired."""
    may_act(by, "drain a worker")
    why = justified("drain", justification)
    process = Process.objects.select_for_update().filter(pk=process_id).first()
    if process is None:
        raise NotFound("process", process_id)
    if process.kind != "worker":
        raise NotToDrain(process, f"is a {process.kind}, which executes no runs")
    if process.ended_at is not None:
        raise NotToDrain(process, "has ended")
    if process.drain_asked_at is not None:
        raise NotToDrain(process, f"was already asked at {process.drain_asked_at.isoformat()}")
    process.drain_asked_at = database_now()
    process.save(update_fields=["drain_asked_at"])
    acted(
        "drain",
        by=by,
        subject=f"worker {process.pid} on {process.host}",
        justification=why,
        before={"processes": [_process_row(process)]},
        after={"drain_asked_at": process.drain_asked_at.isoformat()},
    )
    return process


def _process_row(process: Process) -> dict[str, Any]:
    return {
        "id": str(process.pk),
        "kind": process.kind,
        "pid": process.pid,
        "last_heartbeat_at": process.last_heartbeat_at.isoformat(),
        "end_cause": process.end_cause,
    }


ACTION = "requeue"
_PROOF = "an operator took it from its worker and requeued it"


@transaction.atomic
def requeue(run_id: UUID, *, by: Actor, justification: str) -> Run:
    """Take a run from its worker, which is fenced off, and make it claimable now.
    Raises NotFound, Forbidden, IllegalTransition, JustificationRequired."""
    act = Act(ACTION, run_id, by=by, justification=justification)
    run, head = act.run, act.head
    act.must_be_allowed()
    owner = run.owner
    if is_in_pool(run, now=act.now):
        raise act.refuse(IN_POOL)
    act.before |= {"worker": None if owner is None else str(owner)}
    given = e.RunRequeued(by=by.ref, role=by.role, worker="" if owner is None else str(owner), payload=act.payload)
    events: list[e.Event] = [given]
    if owner is not None:
        lost, incident = _lost(act, owner)
        events.append(lost)
        head.lease = None
        head.save(update_fields=["lease"])
        run.owner = None
        incident.save(force_insert=True)
    make_ready(run, now=act.now)
    save(run, "owner", "ready_at", now=act.now)
    return act.done(*events)


def is_in_pool(run: Run, *, now: datetime) -> bool:
    """Return whether the run is unclaimed and due."""
    return run.owner is None and run.ready_at is not None and run.ready_at <= now


def _lost(act: Act, owner: UUID) -> tuple[e.WorkerLost, Incident]:
    """Return the event and the incident for taking the run from its worker.

    Such an incident isn't counted as a death.
    """
    head, now = act.head, act.now
    stood = progress_at_loss(act.run.pk, claimed_seq=head.claimed_seq)
    process = Process.objects.filter(pk=owner).first()
    silent = None if process is None else max(0, round((now - process.last_heartbeat_at).total_seconds() * 1000))
    lost = e.WorkerLost(
        worker=str(owner),
        epoch=head.epoch,
        pid=process.pid if process else 0,
        proof=_PROOF,
        is_counted=False,
        deaths=head.deaths,
        cause=str(Incident.Cause.REQUEUED),
        host=process.host if process else "",
        reached=str(stood.reached),
        call=stood.call,
        silent_ms=silent,
    )
    incident = Incident(
        run_id=act.run.pk,
        seq=head.seq + 2,
        at=now,
        cause=Incident.Cause.REQUEUED,
        proof=_PROOF,
        worker=owner,
        host=lost.host,
        pid=lost.pid,
        epoch=head.epoch,
        reached=stood.reached,
        in_doubt=stood.stored_calls,
        replayed=stood.replayed,
        is_counted=False,
        deaths=head.deaths,
        is_stopped=False,
        last_sign_at=process.last_heartbeat_at if process else None,
        detected_at=now,
    )
    return lost, incident
