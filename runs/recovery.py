"""The watchdog: a worker that is gone loses its runs, and each is driven again or, after dying too often, shown to an operator.

Proof is acted on at once: the supervisor reaped the process, or its pid and start time are gone on this host. Without proof there
is suspicion, and it takes time (runs/suspicion.py); the fence makes it safe to be wrong about a worker that was merely stopped. A
database restart, a lost connection or a machine that slept seizes nothing.

Whoever puts a worker on record as ended first, frees its runs; should that one die too, every watchdog finds runs whose owner is on
record as ended. Runs that somebody else is just freeing are passed over.
"""

from __future__ import annotations

import logging
import random
import time
from datetime import timedelta
from functools import cache
from uuid import UUID

from django.conf import settings
from django.db import OperationalError, connection, transaction

from ledger import events as e
from ledger.actors import WATCHDOG
from ledger.append import append, locked_head
from ledger.clock import database_now
from ledger.models import Head
from runs import fleet, live
from runs.acts import make_ready, save
from runs.engine.journal import WaitSpec
from runs.incidents import standing
from runs.models import Incident, Process, Run, State, Wait
from runs.processes import is_running
from runs.suspicion import Watcher

log = logging.getLogger("runs.recovery")
MOST_DEATHS = 10
# From this many deaths on a run is driven alone in a process, and only what happens to it there counts further.
SOLO_FROM = 3
ATTENTION = timedelta(days=7)
PASS_SECONDS = 0.25
Cause = Incident.Cause


def worker_died(incarnation_id: UUID, proof: str, cause: Cause = Cause.PROOF) -> int:
    """Free every run that a worker held. Safe to call again, and from several places at once. Returns how many it freed."""
    fleet.bury(incarnation_id, cause=cause, proof=proof)
    if cause != Cause.PROOF:
        # Stopped rather than dead, it may sit in an open transaction and hold its runs' rows.
        fleet.hush(incarnation_id)
    freed, left = _free_all(incarnation_id, proof, cause)
    if left and fleet.hush(incarnation_id):
        more, left = _free_all(incarnation_id, proof, cause)
        freed += more
    if freed:
        log.warning("worker %s is gone (%s): %s run(s) freed to be driven again", incarnation_id, proof, freed)
    if left:
        log.warning("worker %s is gone: %s of its run(s) are locked by somebody; trying again", incarnation_id, left)
    return freed


def _free_all(incarnation_id: UUID, proof: str, cause: Cause) -> tuple[int, int]:
    """How many runs were freed, and how many not because somebody holds their rows. One run's trouble leaves the others alone."""
    freed = left = 0
    for run_id in Run.objects.filter(owner=incarnation_id).values_list("id", flat=True):
        try:
            done = _free(run_id, incarnation_id, proof, cause)
        except OperationalError:
            raise
        except Exception:
            log.exception("run %s: can't be freed from worker %s; trying again", run_id, incarnation_id)
            continue
        freed, left = freed + (done is True), left + (done is None)
    return freed, left


@cache
def _watcher() -> Watcher:
    return Watcher(settings.DURABLEAGENTS.host_ttl_seconds, lambda member: is_running(member.pid, member.born_ticks))


_looked_at = 0.0


def watch() -> int:
    """Look for workers that are gone, and for runs of workers known to have ended. Returns how many runs were freed."""
    global _looked_at
    freed = sum(worker_died(g.id, f"pid {g.pid} is gone on this host") for g in fleet.gone_here() if g.kind == "worker")
    ended = Process.objects.filter(
        kind="worker", ended_at__isnull=False, id__in=Run.objects.filter(owner__isnull=False).values("owner")
    )
    for process in ended:
        cause = Cause(process.end_cause) if process.end_cause in Cause.values else Cause.PROOF
        freed += worker_died(process.id, process.end_proof or "the process is on record as ended", cause)
    now = time.monotonic()
    if now - _looked_at >= PASS_SECONDS:
        _looked_at = now
        freed += _suspect(now)
    return freed


def _suspect(now: float) -> int:
    """Act on silence that has lasted long enough. Of several watchdogs the one that puts it on record first does."""
    called = fleet.roll_call()
    if called is None:
        return 0
    freed = 0
    for verdict in _watcher().judge(*called, now):
        if fleet.bury(verdict.id, cause=verdict.cause, proof=verdict.proof):
            log.warning("worker %s counts as gone (%s): %s", verdict.id, verdict.cause, verdict.proof)
            freed += worker_died(verdict.id, verdict.proof, Cause(verdict.cause))
    return freed


@transaction.atomic
def _free(run_id: UUID, incarnation_id: UUID, proof: str, cause: Cause) -> bool | None:
    """Take one run from a lost worker. False: it isn't that worker's; None: somebody holds its row."""
    head = Head.objects.select_for_update(skip_locked=True).filter(run_id=run_id).first()
    if head is None:
        return None
    run = Run.objects.select_for_update().get(pk=run_id)
    if run.owner != incarnation_id:
        return False
    now = database_now()
    process = Process.objects.filter(pk=incarnation_id).first()
    stood = standing(run_id, seq=head.seq, claimed_seq=head.claimed_seq)
    # A death counts only if it is proven and the run came no further since its claim: a run that makes progress is not poison, one
    # that gets as far as sending its call again and again is. Neighbours die with a poison run, so from SOLO_FROM on only a death that the run died alone is held against it.
    is_counted = cause == Cause.PROOF and not stood.has_progressed and (head.deaths < SOLO_FROM or run.is_solo)
    if stood.has_progressed:
        head.deaths = 0
    head.deaths += is_counted
    head.lease = None
    head.save(update_fields=["deaths", "lease"])
    run.owner, run.is_solo = None, head.deaths >= SOLO_FROM
    lost = e.WorkerLost(
        worker=str(incarnation_id), epoch=head.epoch, pid=process.pid if process else 0, proof=proof, is_counted=is_counted,
        deaths=head.deaths, cause=str(cause), host=process.host if process else "", reached=str(stood.reached), call=stood.call,
        silent_ms=None if process is None else max(0, round((now - process.last_heartbeat_at).total_seconds() * 1000)),
    )  # fmt: skip
    is_stopped = head.deaths >= MOST_DEATHS
    if is_stopped:
        problem = f"{head.deaths} workers in a row died on this run before it could write anything, {head.deaths - SOLO_FROM} of them on it alone"
        seq = _stop_for_operator(run, [lost], reason="poison", problem=problem, seq=head.seq, history=_history(run_id))
    else:
        seq = append(run.id, lost, by=WATCHDOG)
        make_ready(run, now=now + _backoff(head.deaths))
    Incident.objects.create(
        run_id=run_id, seq=head.seq + 1, at=now, cause=cause, proof=proof, worker=incarnation_id, host=lost.host, pid=lost.pid,
        epoch=head.epoch, reached=stood.reached, in_doubt=stood.in_doubt, replayed=stood.replayed, is_counted=is_counted,
        deaths=head.deaths, is_stopped=is_stopped, last_sign_at=process.last_heartbeat_at if process else None,
        detected_at=(process and process.ended_at) or now,
    )  # fmt: skip
    save(run, "owner", "ready_at", "is_solo", now=now)
    live.ring(run.id, seq)
    return True


def _history(run_id: UUID) -> list[dict[str, str | int]]:
    """The deaths before, for whoever has to judge: when, where, how."""
    rows = Incident.objects.filter(run_id=run_id).order_by("-seq")[:MOST_DEATHS]
    return [{"at": r.at.isoformat(), "host": r.host, "pid": r.pid, "proof": r.proof, "deaths": r.deaths} for r in reversed(rows)]


def _backoff(deaths: int) -> timedelta:
    """The first recovery at once, then longer and jittered: 0, ~0.5, ~1, ~2 … at most 30 s."""
    return (
        timedelta(0)
        if deaths <= 1
        else timedelta(seconds=min(30.0, 0.5 * 2 ** (deaths - 2)) * random.uniform(0.5, 1.0))
    )


def _stop_for_operator(
    run: Run, told: list[e.Event], *, reason: str, problem: str, seq: int, history: list[dict[str, str | int]] | None = None
) -> int:
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
    found = e.OperatorNeeded(reason=reason, payload={"problem": problem} | ({"history": history} if history else {}))
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
    head.lease, head.deaths = None, 0
    head.save(update_fields=["lease", "deaths"])
    run.owner, run.is_solo = None, False
    seq = _stop_for_operator(run, [], reason="engine_failed", problem=problem, seq=head.seq)
    save(run, "owner", "is_solo", now=database_now())
    live.ring(run.id, seq)
    return True


def orphans_without_process() -> int:
    """Runs whose owner is not on record at all (its row was never written): nobody drives them. Counted for the readiness page."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM runs_run r WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs_process p WHERE p.id = r.owner)"
        )
        return int(cursor.fetchone()[0])
