"""The sweeper for timers, deadlines and orphans.
Its cost depends on the number of due items, not on the total. Damaged runs don't delay others. Simple waits are
settled in SQL batches (`runs_fire_due`) by one process at a time, others individually under the run's locks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from uuid import UUID

from django.db import connection, transaction

from ledger.actors import SWEEPER
from ledger.clock import database_now
from ledger.errors import first_line
from runs import features
from runs.fleet import agent_versions
from runs.journal import cache, notify
from runs.journal.database_errors import is_refusal, is_transient
from runs.models import ENDED, KEPT, WITHOUT_PROOF, Wait
from runs.services import halted_time
from runs.services.budgets import raising
from runs.services.command import is_busy, locked, mark_overdue
from runs.services.families import ends
from runs.services.starts import turns
from runs.services.wakeups import NOTIFY_SQL
from runs.workers import failover

log = logging.getLogger("runs.workers.timers")
_LOCK = 7_231_001  # an arbitrary number, the same in every process
BATCH = 100
IDLE_SECONDS = 1.0
TROUBLED_SECONDS = 30.0
QUIET_SECONDS = 60.0  # a wait without problems for this long counts as handled
# Time limit of one pass, because the same thread looks for dead workers.
PASS_SECONDS = 0.25
# Number of failures of a due wait after which an operator is asked.
MAX_TROUBLES = 3
# Resolutions at the deadline, for kinds of waits that need no other handling.
RESOLUTIONS = {"timer": "fired", "signal": "timed_out", "input": "timed_out", "message": "timed_out"}
_FIRE = "SELECT wait_id, run_id, seq, is_awake, problem FROM runs_fire_due(%s, %s, %s, %s::uuid[], %s)"
# clock_timestamp() is volatile, so the planner would compare it row by row and read all open waits. The statement's
# time limits the index scan, and each wait is checked again under its locks.
DUE = """
    SELECT id, run_id FROM runs_wait
    WHERE resolved_at IS NULL AND NOT is_overdue AND deadline <= statement_timestamp() AND NOT (id = ANY(%s::uuid[]))
      AND NOT (kind = ANY(%s))
    ORDER BY deadline LIMIT %s"""
NEXT = """
    SELECT extract(epoch FROM deadline - clock_timestamp()) FROM runs_wait
    WHERE resolved_at IS NULL AND NOT is_overdue AND NOT (id = ANY(%s::uuid[])) ORDER BY deadline LIMIT 1"""
_FOR_NOTHING = """
    SELECT r.id FROM runs_run r WHERE r.state IN ('waiting_tool', 'waiting_human', 'waiting_event') AND r.owner IS NULL
      AND r.updated_at < statement_timestamp() - interval '1 minute'
      AND NOT EXISTS (SELECT 1 FROM runs_wait w WHERE w.run_id = r.id AND w.resolved_at IS NULL) LIMIT %s"""
_TIME_UP = """
    SELECT id FROM runs_run r WHERE time_up_at <= statement_timestamp() AND ended_at IS NULL AND state <> 'compensating'
      AND NOT EXISTS (SELECT 1 FROM runs_wait w WHERE w.run_id = r.id AND w.kind = 'budget' AND w.resolved_at IS NULL)
    ORDER BY time_up_at LIMIT %s"""
_troubled: dict[UUID, tuple[float, int]] = {}


def sweep() -> float:
    """Act on everything that is due. Returns the seconds until the next deadline, at most IDLE_SECONDS."""
    until = time.monotonic() + PASS_SECONDS
    while (fired := _fire()) == BATCH and time.monotonic() < until:
        pass
    if fired is None:
        return IDLE_SECONDS
    seconds = 0.0 if fired == BATCH else _seconds_to_next()
    if seconds <= 0 and fired < BATCH and _act_on_due(until):
        seconds = _seconds_to_next()
    for act in features.parts_of_all(lambda each: each.sweeps):
        _call(act, until)
    return seconds


def _fire() -> int | None:
    """Settle one batch of due waits.
    Returns the number found, or None if another process is doing this."""
    with connection.cursor() as cursor:
        cursor.execute(_FIRE, [_LOCK, list(RESOLUTIONS), list(RESOLUTIONS.values()), _passed_over(), BATCH])
        rows = cursor.fetchall()
    if rows and rows[0] == (None,) * 5:
        return None
    rings: dict[str, int] = {}
    for wait_id, run_id, seq, _, problem in rows:
        if problem is None and seq is not None:  # otherwise it was deferred
            rings[str(run_id)] = seq
        elif problem is not None:
            _pass_over(wait_id, run_id, _due(wait_id, problem))
    if any(is_awake for *_, is_awake, _ in rows):
        notify.notify_after_commit(connection, NOTIFY_SQL)
    notify.ring_many(rings)
    return len(rows)


def _act_on_due(until: float) -> bool:
    """Handle due waits of the kinds that need more than a fixed resolution. Returns False if more may be due."""
    with connection.cursor() as cursor:
        cursor.execute(DUE, [_passed_over(), list(RESOLUTIONS), BATCH])
        due = cursor.fetchall()
    for wait_id, run_id in due:
        if time.monotonic() >= until:
            return False
        try:
            _expire(wait_id, run_id)
        except Exception as error:
            if is_transient(error) and not is_refusal(error):
                raise
            log.exception("run %s: its wait %s is due but can't be handled", run_id, wait_id)
            _pass_over(wait_id, run_id, _due(wait_id, first_line(error)))
    return len(due) < BATCH


def _due(wait_id: UUID, problem: str) -> str:
    return f"its wait {wait_id} is due but can't be handled: {problem}"


def _pass_over(what: UUID, run_id: UUID, problem: str) -> None:
    """Skip a wait or child with a problem for a while, so that others don't have to wait.
    An operator is asked if the problem persists."""
    _, count = _troubled.get(what, (0.0, 0))
    _troubled[what] = time.monotonic() + TROUBLED_SECONDS, count + 1
    log.error("run %s: %s", run_id, problem)
    if count + 1 == MAX_TROUBLES:
        failover.show(run_id, problem)


def _passed_over() -> list[UUID]:
    now = time.monotonic()
    for wait_id in [w for w, (until, _) in _troubled.items() if until + QUIET_SECONDS <= now]:
        del _troubled[wait_id]
    return [wait_id for wait_id, (until, _) in _troubled.items() if until > now]


def tell_parents() -> int:
    """Report to parents the ends of children that were not reported yet. Called every few seconds. Returns how many."""
    return sum(_tell(parent, children) for parent, children in ends.untold(excluding=_passed_over()).items())


def _tell(parent: UUID, children: list[UUID]) -> int:
    """Report children's ends together.
    After an error, report them one by one, so that only the failing ones are skipped."""
    try:
        return ends.tell(parent, children)
    except Exception as error:
        if is_transient(error) and not is_refusal(error):
            raise
        if len(children) > 1:
            return sum(_tell(parent, [child]) for child in children)
        log.exception("run %s: the end of its child %s can't be told", parent, children[0])
        _pass_over(
            children[0], parent, f"its child {children[0]} has ended but the run can't be notified: {first_line(error)}"
        )
        return 0


def show_who_waits_for_nothing() -> int:
    """Show operators the waiting runs that have no open wait.
    Returns how many. This is done hourly, because it reads all waiting runs."""
    with connection.cursor() as cursor:
        cursor.execute(_FOR_NOTHING, [BATCH])
        run_ids = [row[0] for row in cursor.fetchall()]
    for run_id in run_ids:
        failover.show(run_id, "it waits for nothing: the row of its wait is missing")
    return len(run_ids)


def ask_for_time() -> int:
    """Ask people about runs that exceeded their time limit. Called every few seconds."""
    with connection.cursor() as cursor:
        cursor.execute(_TIME_UP, [BATCH])
        run_ids = [row[0] for row in cursor.fetchall()]
    for run_id in run_ids:
        try:
            raising.time_is_up(run_id)
        except Exception as error:
            if is_transient(error) and not is_refusal(error):
                raise
            log.exception("run %s: its time is up, and nobody can be asked", run_id)
            failover.show(run_id, f"its time is used up, but nobody can be asked: {first_line(error)}")
    return len(run_ids)


def sweep_promptly() -> None:
    """Call the features' sweeps that can't wait for the next regular sweep."""
    until = time.monotonic() + PASS_SECONDS
    for prompt in features.parts_of_all(lambda each: each.prompt_sweeps):
        _call(prompt.act, until)


def _call(act: features.Sweep, until: float) -> None:
    """Call a feature's sweep, and skip for a while the items that failed."""
    for what, run_id, error in act(_passed_over(), until):
        if is_transient(error) and not is_refusal(error):
            raise error
        _pass_over(what, run_id, f"{what} is due but can't be handled: {first_line(error)}")


def act_on_each(find: Callable[..., list[UUID]], act: Callable[[UUID], object], what: str) -> int:
    """Call `act` for each run found.
    Runs for which it fails are skipped for a while. Returns the number found."""
    run_ids = find(excluding=_passed_over())
    for run_id in run_ids:
        try:
            act(run_id)
        except Exception as error:
            if is_transient(error) and not is_refusal(error):
                raise
            log.exception("run %s: %s, and nothing can be done about it", run_id, what)
            _pass_over(run_id, run_id, f"{what}, but it can't be handled: {first_line(error)}")
    return len(run_ids)


def retire() -> None:
    """Delete old rows that nothing refers to any more. Idempotency keys are kept."""
    show_who_waits_for_nothing()
    retire_processes()
    agent_versions.forget_the_dead()
    cache.retire()


def retire_processes() -> int:
    """Delete the rows of processes that ended over a week ago, except those that may still be alive.
    Journals keep the names of their workers."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM runs_process WHERE ended_at < clock_timestamp() - make_interval(secs => %s) "
            "AND NOT (end_cause = ANY(%s))",
            [KEPT.total_seconds(), [str(cause) for cause in WITHOUT_PROOF]],
        )
        return cursor.rowcount


def _seconds_to_next() -> float:
    with connection.cursor() as cursor:
        cursor.execute(NEXT, [_passed_over()])
        row = cursor.fetchone()
    return IDLE_SECONDS if row is None else min(IDLE_SECONDS, max(0.0, float(row[0])))


@transaction.atomic
def _expire(wait_id: UUID, run_id: UUID) -> None:
    """Handle one passed deadline under the locks, by the wait's kind.
    If the run is locked, this is left to the next sweep."""
    if is_busy(run_id):
        return
    head, run = locked(run_id, under=SWEEPER)
    wait = Wait.objects.select_for_update().get(pk=wait_id)
    now = database_now()
    if wait.resolved_at is not None or wait.deadline > now or run.state in ENDED or halted_time.put_off(wait):
        return
    act = features.handler(lambda each: each.on_wait_due, wait.kind) or mark_overdue
    act(head, run, wait, now, SWEEPER)


def sweep_starts() -> int:
    """Start queued runs whose turn has come, and give up runs that did not start in time.
    Returns how many runs the two steps found: the larger of the two numbers."""
    return max(
        act_on_each(turns.ended, turns.pass_on, "it has ended, but others are queued behind it"),
        act_on_each(turns.late, turns.give_up, "it should have started by now"),
    )
