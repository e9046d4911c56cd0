"""The watchdog: a worker that is proven dead loses its runs at once, and each is driven again or, after dying too often, shown to an operator.

Only proof counts: the supervisor reaped the process, or its pid and start time are gone on this host. A database restart, a lost
connection or a long silence proves nothing and seizes nothing.
"""

from __future__ import annotations

import logging
import random
from datetime import timedelta
from uuid import UUID

from django.db import OperationalError, connection, transaction

from ledger import events as e
from ledger.actors import WATCHDOG
from ledger.append import append, locked_head
from ledger.clock import database_now
from runs import fleet, live
from runs.acts import make_ready, save
from runs.engine.journal import WaitSpec
from runs.models import Process, Run, State, Wait

log = logging.getLogger("runs.recovery")
MOST_DEATHS = 10
ATTENTION = timedelta(days=7)


def worker_died(incarnation_id: UUID, proof: str) -> int:
    """Free every run that a dead worker held. Safe to call again, and from several places at once. Returns how many it freed."""
    freed = 0
    for run_id in Run.objects.filter(owner=incarnation_id).values_list("id", flat=True):
        try:
            freed += _free(run_id, incarnation_id, proof)
        except OperationalError:
            raise
        except Exception:
            log.exception("run %s: can't be freed from worker %s; trying again", run_id, incarnation_id)
    if freed:
        log.warning("worker %s is gone (%s): %s run(s) freed to be driven again", incarnation_id, proof, freed)
    fleet.bury(incarnation_id)
    return freed


def watch() -> int:
    """Look for workers of this host that are gone, and for runs of workers known to have ended. Returns how many runs were freed."""
    gone = {g.id: f"pid {g.pid} is gone on this host" for g in fleet.gone_here() if g.kind == "worker"}
    ended = Process.objects.filter(
        kind="worker", ended_at__isnull=False, id__in=Run.objects.filter(owner__isnull=False).values("owner")
    )
    gone.update(dict.fromkeys(ended.values_list("id", flat=True), "the process is on record as ended"))
    return sum(worker_died(incarnation, proof) for incarnation, proof in gone.items())


@transaction.atomic
def _free(run_id: UUID, incarnation_id: UUID, proof: str) -> int:
    head = locked_head(run_id)
    run = Run.objects.select_for_update().get(pk=run_id)
    if run.owner != incarnation_id:
        return 0
    now = database_now()
    # A death counts only if it interrupted work and nothing was written since the claim: a run that makes progress is not poison.
    is_counted = head.seq == head.claimed_seq
    head.deaths = head.deaths + 1 if is_counted else 0
    head.lease = None
    head.save(update_fields=["deaths", "lease"])
    pid = Process.objects.filter(pk=incarnation_id).values_list("pid", flat=True).first() or 0
    lost = e.WorkerLost(
        worker=str(incarnation_id), epoch=head.epoch, pid=pid, proof=proof, is_counted=is_counted, deaths=head.deaths
    )
    run.owner = None
    if head.deaths >= MOST_DEATHS:
        problem = f"{head.deaths} workers in a row died on this run before it could write anything"
        seq = _stop_for_operator(run, [lost], reason="poison", problem=problem, seq=head.seq)
    else:
        seq = append(run.id, lost, by=WATCHDOG)
        make_ready(run, now=now + _backoff(head.deaths))
    save(run, "owner", "ready_at", now=now)
    live.ring(run.id, seq)
    return 1


def _backoff(deaths: int) -> timedelta:
    """The first recovery at once, then longer and jittered: 0, ~0.5, ~1, ~2 … at most 30 s."""
    return (
        timedelta(0)
        if deaths <= 1
        else timedelta(seconds=min(30.0, 0.5 * 2 ** (deaths - 2)) * random.uniform(0.5, 1.0))
    )


def _stop_for_operator(run: Run, told: list[e.Event], *, reason: str, problem: str, seq: int) -> int:
    """A run that no worker gets anywhere with waits for a person instead of the next worker."""
    now = database_now()
    spec = WaitSpec(
        str(run.id),
        f"operator/{seq}",
        0,
        "operator",
        0,
        now + ATTENTION,
        {"title": "Needs an operator", "reason": reason},
    )
    Wait.objects.create(
        id=spec.id, run=run, slot=spec.slot, kind=spec.kind, opened_at=now, deadline=spec.deadline, detail=spec.detail
    )
    if run.state in (State.PENDING, State.RUNNING, State.COMPENSATING):
        run.park_for_human()
    found = e.OperatorNeeded(reason=reason, payload={"problem": problem})
    opened = e.WaitOpened(slot=spec.slot, wait="operator", n=0, deadline=spec.deadline.isoformat())
    parked = e.RunParked(state="waiting_human", waits=[spec.slot])
    return append(run.id, *told, found, opened, parked, by=WATCHDOG)


@transaction.atomic
def engine_failed(run_id: UUID, incarnation_id: UUID, problem: str) -> bool:
    """The engine itself failed on a run, again and again: stop it for an operator instead of trying for ever."""
    head = locked_head(run_id)
    run = Run.objects.select_for_update().get(pk=run_id)
    if run.owner != incarnation_id:
        return False
    head.lease = None
    head.save(update_fields=["lease"])
    run.owner = None
    seq = _stop_for_operator(run, [], reason="engine_failed", problem=problem, seq=head.seq)
    save(run, "owner", now=database_now())
    live.ring(run.id, seq)
    return True


def orphans_without_process() -> int:
    """Runs whose owner is not on record at all (its row was never written): nobody drives them. Counted for the readiness page."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM runs_run r WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs_process p WHERE p.id = r.owner)"
        )
        return int(cursor.fetchone()[0])
