"""Failover: runs of a lost worker are freed, or stopped for an operator after too many deaths.
Proof of death has an immediate effect; suspicion takes time (runs/workers/failure_detector.py) and may be wrong, which
the fence makes safe. An outage, or a machine that was suspended, frees no runs. If the process that recorded a worker's
end dies before it frees that worker's runs, the other watchdogs find them.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import OperationalError, transaction

from ledger import events as e
from ledger.actors import WATCHDOG
from ledger.append import append, locked_head
from ledger.clock import database_now
from ledger.contents import keep_clear
from ledger.errors import RecordDamaged, first_line
from ledger.models import Head
from runs import log_messages
from runs.backoff import pause_seconds
from runs.engine.journal import WaitSpec
from runs.fleet import members
from runs.fleet.incidents import ProgressAtLoss, progress_at_loss
from runs.fleet.procfs import is_running
from runs.journal import notify
from runs.models import ENDED, Incident, Process, Run, State, Wait
from runs.services.command import make_ready, open_wait, save
from runs.workers.failure_detector import Watcher

log = logging.getLogger("runs.workers.failover")
MAX_DEATHS = 10
# From this many deaths on, a run is driven alone in a process, and only deaths there count.
SOLO_FROM = 3
ATTENTION = timedelta(days=7)
# Fewer failures than this with one run may still be temporary.
MAX_FAILURES = 3
BEYOND_HELP = timedelta(minutes=5)
Cause = Incident.Cause


def worker_died(incarnation_id: UUID, proof: str, cause: Cause = Cause.PROOF) -> int:
    """Free every run of a lost worker. Returns how many. Idempotent, even when called concurrently."""
    members.bury(incarnation_id, cause=cause, proof=proof)
    if cause != Cause.PROOF:
        # A worker that was only stopped may hold its runs' rows in an open transaction.
        members.hush(incarnation_id)
    freed, left = _free_all(incarnation_id, proof, cause)
    if left and members.hush(incarnation_id):
        more, left = _free_all(incarnation_id, proof, cause)
        freed += more
    if freed:
        log.warning("worker %s is gone (%s): %s run(s) freed to be driven again", incarnation_id, proof, freed)
    if left:
        log.warning("worker %s is gone: %s of its run(s) are locked by someone; trying again", incarnation_id, left)
    return freed


def _free_all(incarnation_id: UUID, proof: str, cause: Cause) -> tuple[int, int]:
    """Free the worker's runs.
    Returns the numbers of freed and of locked runs. A failure with one run doesn't affect others."""
    freed = left = 0
    for run_id in Run.objects.filter(owner=incarnation_id).values_list("id", flat=True):
        try:
            done = _free(run_id, incarnation_id, proof, cause)
        except OperationalError:
            raise
        except Exception as error:
            _not_freed(run_id, incarnation_id, error)
            continue
        _unfreed.pop(run_id, None)
        freed, left = freed + (done is True), left + (done is None)
    return freed, left


_unfreed: dict[UUID, int] = {}


def _not_freed(run_id: UUID, incarnation_id: UUID, error: Exception) -> None:
    """Count a failure to free a run.
    After a few, stop it for an operator instead of trying again in every pass."""
    count = _unfreed[run_id] = _unfreed.get(run_id, 0) + 1
    log.error("run %s: can't be freed from worker %s", run_id, incarnation_id, exc_info=error)
    if count >= MAX_FAILURES:
        del _unfreed[run_id]
        stop(run_id, incarnation_id, f"its worker has ended, but the run can't be released: {first_line(error)}")


@cache
def _watcher() -> Watcher:
    return Watcher(settings.DURABLEAGENTS.host_ttl_seconds, lambda member: is_running(member.pid, member.born_ticks))


# The process that records a worker's end frees its runs. In case it died first, all others check for such runs this
# often.
ENDED_SECONDS = 6.0  # workers check a little more often, together with their other rare checks
_ended_at = 0.0


def watch() -> int:
    """Find lost workers and runs of ended workers, and free these runs. Returns the number of freed runs."""
    return watch_with(members.roll_call(), is_thorough=True)


def watch_with(called: members.Roll | None, *, is_thorough: bool = False) -> int:
    """Do the same as `watch`, with a given roll call.
    Runs of ended workers are only looked for every few seconds, unless `is_thorough`."""
    global _ended_at
    freed, now = 0, time.monotonic()
    for member in [] if called is None else called.members:
        if member.kind == "worker" and member.is_gone:
            freed += worker_died(member.id, f"pid {member.pid} no longer exists on this host")
    if called is not None:
        freed += _suspect(now, called)
    if is_thorough or now - _ended_at >= ENDED_SECONDS:
        _ended_at = now
        freed += _free_of_ended()
    return freed


def _free_of_ended() -> int:
    ended = Process.objects.filter(
        kind="worker", ended_at__isnull=False, id__in=Run.objects.filter(owner__isnull=False).values("owner")
    )
    freed = 0
    for process in ended:
        cause = Cause(process.end_cause) if process.end_cause in Cause.values else Cause.PROOF
        freed += worker_died(process.id, process.end_proof or "the process is recorded as ended", cause)
    return freed


def _suspect(now: float, called: members.Roll | None) -> int:
    """Free the runs of workers that have been silent for too long.
    If several watchdogs notice it, the first to record it acts."""
    freed = 0
    for verdict in [] if called is None else _watcher().judge(called.members, called.server_age, now):
        if members.bury(verdict.id, cause=verdict.cause, proof=verdict.proof):
            log.warning("worker %s counts as gone (%s): %s", verdict.id, verdict.cause, verdict.proof)
            freed += worker_died(verdict.id, verdict.proof, Cause(verdict.cause))
    return freed


@transaction.atomic
def _free(run_id: UUID, incarnation_id: UUID, proof: str, cause: Cause) -> bool | None:
    """Take one run from a lost worker.
    Raises RecordDamaged if it has no head. Returns True if it was freed, False for another worker's run, and None for
    one with a locked head."""
    head = Head.objects.select_for_update(skip_locked=True).filter(run_id=run_id).first()
    if head is None:
        if Head.objects.filter(run_id=run_id).exists():
            return None
        raise RecordDamaged(run_id, "its head")
    run = Run.objects.select_for_update().get(pk=run_id)
    if run.owner != incarnation_id:
        return False
    now = database_now()
    process = Process.objects.filter(pk=incarnation_id).first()
    stood = progress_at_loss(run_id, claimed_seq=head.claimed_seq)
    is_counted = _count_death(head, run, cause, has_progressed=stood.has_progressed)
    silence = None if process is None else (now - process.last_heartbeat_at).total_seconds()
    lost = e.WorkerLost(
        worker=str(incarnation_id),
        epoch=head.epoch,
        pid=process.pid if process else 0,
        proof=proof,
        is_counted=is_counted,
        deaths=head.deaths,
        cause=str(cause),
        host=process.host if process else "",
        reached=str(stood.reached),
        call=stood.call,
        silent_ms=None if silence is None else max(0, round(silence * 1000)),
    )
    is_stopped = head.deaths >= MAX_DEATHS
    if is_stopped:
        problem = (
            f"{head.deaths} workers in a row died on this run before it could record anything, "
            f"{head.deaths - SOLO_FROM} of them while executing only this run"
        )
        seq = _stop_for_operator(run, [lost], reason="poison", problem=problem, seq=head.seq, history=_history(run_id))
    else:
        seq = append(run.id, lost, by=WATCHDOG)
        make_ready(run, now=now + _backoff(head.deaths))
    Incident.objects.create(
        run_id=run_id,
        seq=head.seq + 1,
        at=now,
        cause=cause,
        proof=proof,
        worker=incarnation_id,
        is_stopped=is_stopped,
        last_sign_at=process.last_heartbeat_at if process else None,
        detected_at=(process and process.ended_at) or now,
        **_figures(lost, stood),
    )
    save(run, "owner", "ready_at", "is_solo", now=now)
    notify.ring(run.id, seq)
    return True


def _count_death(head: Head, run: Run, cause: Cause, *, has_progressed: bool) -> bool:
    """Clear the lease in the head, and count the death if the run may have caused it.
    Returns whether it was counted. Only a proven death without progress since the claim counts; sending the same call
    again is not progress. A poison run also takes down the other runs on its worker, so once a run has SOLO_FROM
    deaths, further ones count only if it was driven alone."""
    is_counted = cause == Cause.PROOF and not has_progressed and (head.deaths < SOLO_FROM or run.is_solo)
    head.deaths = (0 if has_progressed else head.deaths) + is_counted
    head.lease = None
    head.save(update_fields=["deaths", "lease"])
    run.owner, run.is_solo = None, head.deaths >= SOLO_FROM
    return is_counted


def _figures(lost: e.WorkerLost, stood: ProgressAtLoss) -> dict[str, Any]:
    return {
        "host": lost.host,
        "pid": lost.pid,
        "epoch": lost.epoch,
        "is_counted": lost.is_counted,
        "deaths": lost.deaths,
        "reached": stood.reached,
        "in_doubt": stood.stored_calls,
        "replayed": stood.replayed,
    }


def _history(run_id: UUID) -> list[dict[str, str | int]]:
    rows = Incident.objects.filter(run_id=run_id).order_by("-seq")[:MAX_DEATHS]
    return [
        {"at": r.at.isoformat(), "host": r.host, "pid": r.pid, "proof": r.proof, "deaths": r.deaths}
        for r in reversed(rows)
    ]


def _backoff(deaths: int) -> timedelta:
    """Return the delay before recovery, with jitter: 0, about 0.5, 1, 2 …, at most 30 s."""
    return timedelta(seconds=pause_seconds(deaths - 1, first=0.5, longest=30.0, spread=0.5))


def _stop_for_operator(
    run: Run,
    events: list[e.Event],
    *,
    reason: str,
    problem: str,
    seq: int,
    history: list[dict[str, str | int]] | None = None,
) -> int:
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
    open_wait(run, spec, now=now)
    if run.state in (State.PENDING, State.RUNNING, State.COMPENSATING):
        run.park_for_human()
    needed = e.OperatorNeeded(reason=reason, payload={"problem": problem} | ({"history": history} if history else {}))
    opened = e.WaitOpened(slot=spec.slot, wait="operator", n=0, deadline=spec.deadline.isoformat())
    parked = e.RunParked(state="waiting_human", waits=[spec.slot])
    return append(run.id, *events, needed, opened, parked, by=WATCHDOG)


def stop(run_id: UUID, owner: UUID | None, problem: str) -> bool:
    """Stop a run for an operator, if `owner` (None: no worker) still has it.
    Returns False if not, or if nothing can be done. If the run's rows are damaged, the journal accepts no event: the
    run is then stopped without one, and the wait says so."""
    try:
        return engine_failed(run_id, owner, problem)
    except OperationalError:
        raise
    except Exception as error:
        message = first_line(error)
    try:
        is_done = _stop_off_record(run_id, owner, problem)
        log.error(log_messages.RUN_STOPPED_OFF_RECORD, run_id, message, problem)
        return is_done
    except OperationalError:
        raise
    except Exception as error:
        message = first_line(error)
    log.error(log_messages.RUN_BEYOND_HELP, run_id, message, BEYOND_HELP.total_seconds(), problem)
    Run.objects.filter(pk=run_id, owner=owner, ready_at__isnull=False).update(ready_at=database_now() + BEYOND_HELP)
    return False


@transaction.atomic
def engine_failed(run_id: UUID, owner: UUID | None, problem: str) -> bool:
    """Stop a run for an operator after repeated engine failures.
    Returns False if `owner` no longer has it."""
    head = locked_head(run_id)
    run = Run.objects.select_for_update().get(pk=run_id)
    if run.owner != owner or run.state not in (State.PENDING, State.RUNNING, State.COMPENSATING):
        return False
    head.lease, head.deaths = None, 0
    head.save(update_fields=["lease", "deaths"])
    run.owner, run.is_solo, run.ready_at = None, False, None
    seq = _stop_for_operator(run, [], reason="engine_failed", problem=problem, seq=head.seq)
    save(run, "owner", "is_solo", "ready_at", now=database_now())
    log.error(log_messages.RUN_STOPPED, run_id, problem)
    notify.ring(run.id, seq)
    return True


def show(run_id: UUID, problem: str) -> None:
    """Stop an unclaimed run for an operator because of a problem that retrying doesn't solve."""
    try:
        run = Run.objects.filter(pk=run_id).first()
        if run is not None and run.owner is None:
            _stop_off_record(run_id, None, problem)
    except Exception:
        log.exception("run %s: an operator can't be told that %s", run_id, problem)


@transaction.atomic
def _stop_off_record(run_id: UUID, owner: UUID | None, problem: str) -> bool:
    """Stop a run without an event, because the journal accepts none.
    This is the only transition without one. After the rows are repaired, the operator's action on the wait is journaled
    as usual."""
    Head.objects.select_for_update().filter(
        run_id=run_id
    ).first()  # locked first, if it exists, because of the lock order
    run = Run.objects.select_for_update().get(pk=run_id)
    if run.owner != owner or run.state in ENDED:
        return False
    now = database_now()
    stops = run.waits.filter(kind=Wait.Kind.OPERATOR)
    if not stops.filter(resolved_at__isnull=True).exists():
        slot = f"operator/damaged.{stops.count()}"
        detail = {"title": "Needs an operator", "reason": "damaged_journal", "problem": problem[:500]}
        deadline = now + ATTENTION
        wait = Wait(
            id=uuid4(), run=run, slot=slot, kind=Wait.Kind.OPERATOR, opened_at=now, deadline=deadline, detail=detail
        )
        try:
            Wait._meta.get_field("detail").stored_in(wait)
        except RecordDamaged as error:  # nothing can be encrypted, and the wait says only that
            keep_clear(wait, "detail", detail | {"problem": str(error)})
        wait.save(force_insert=True)
    if run.state in (State.PENDING, State.RUNNING, State.COMPENSATING):
        run.park_for_human()
    # A head with values out of range accepts no change, and usually needs none.
    Head.objects.filter(run_id=run_id, lease__isnull=False).update(lease=None)
    run.owner, run.is_solo, run.ready_at = None, False, None
    save(run, "owner", "is_solo", "ready_at", now=now)
    return True
