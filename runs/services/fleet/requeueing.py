"""Giving a run back to the pool that its worker seems to be stuck with, or that waits for its next try.

The worker may live and be at work: its lease ends here, so it writes no more, and what it holds it hands in as late
news. A call in doubt is treated as after a loss: asked for, sent again under its key, or shown to a person.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from ledger import events as e
from ledger.actors import Actor
from runs.fleet.incidents import standing
from runs.models import Incident, Process, Run
from runs.services.allowed.rules import IN_POOL
from runs.services.command import Act, make_ready, save

ACTION = "requeue"
_PROOF = "an operator took it from its worker and gave it back to the pool"


@transaction.atomic
def requeue(run_id: UUID, *, by: Actor, justification: str) -> Run:
    """Whoever drives the run writes no more, and the next worker takes it now. Raises NotFound, Forbidden,
    IllegalTransition, JustificationRequired."""
    act = Act(ACTION, run_id, by=by, justification=justification)
    run, head = act.run, act.head
    act.must_be_allowed()
    owner = run.owner
    if is_in_pool(run, now=act.now):
        raise act.refuse(IN_POOL)
    act.before |= {"worker": None if owner is None else str(owner)}
    given = e.RunRequeued(by=by.ref, role=by.role, worker="" if owner is None else str(owner), payload=act.payload)
    told: list[e.Event] = [given]
    if owner is not None:
        lost, incident = _lost(act, owner)
        told.append(lost)
        head.lease = None
        head.save(update_fields=["lease"])
        run.owner = None
        incident.save(force_insert=True)
    make_ready(run, now=act.now)
    save(run, "owner", "ready_at", now=act.now)
    return act.done(*told)


def is_in_pool(run: Run, *, now: datetime) -> bool:
    """Whether the next worker takes it anyway: its time has come, maybe since its row was written last."""
    return run.owner is None and run.ready_at is not None and run.ready_at <= now


def _lost(act: Act, owner: UUID) -> tuple[e.WorkerLost, Incident]:
    """That the run was taken from its worker, as an event and as an incident. It is held against nobody."""
    head, now = act.head, act.now
    stood = standing(act.run.pk, claimed_seq=head.claimed_seq)
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
