"""Act on approvals whose times have passed: remind, escalate, keep waiting or expire.

The passing of time never approves anything.
"""

# Each approval has its own transaction under its run's locks, and its state is read from the journal. So a concurrent
# decision either comes first or sees the result, two sweepers act once, and after a crash half-way nothing is done.

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max

from approvals.deadlines import restart_deadline
from approvals.models import Approval, ApprovalState, Escalation
from approvals.queue_models import Queue
from approvals.services import expire
from durableagents.contrib.calendars import absences, versions
from durableagents.contrib.calendars.clock import DEADLINES, add_escalation, look_again
from durableagents.contrib.calendars.hours import Calendar
from durableagents.contrib.calendars.progress import Progress, next_look
from durableagents.contrib.calendars.terms import Step, plus, reminders
from ledger import events as e
from ledger.actors import SWEEPER, Actor
from ledger.clock import database_now
from ledger.models import Head
from runs import features
from runs.models import ENDED, Run, State, Wait
from runs.services import halted_time
from runs.services.command import is_busy, journal, locked

log = logging.getLogger("durableagents.calendars")
BATCH = 100
# Due approvals are found by an index and checked again under locks. Paused and halted runs get their reminders once
# they continue.
_DUE = """
    SELECT a.id, a.run_id FROM approvals_approval a JOIN runs_run r ON r.id = a.run_id
    WHERE a.state = 'open' AND a.look_at IS NOT NULL AND a.look_at <= statement_timestamp()
      AND r.state <> 'paused' AND runs_halted_by(a.run_id, NULL) IS NULL AND NOT (a.id = ANY(%s::uuid[]))
    ORDER BY a.look_at LIMIT %s"""


def on_due(head: Head, run: Run, wait: Wait, now: datetime, by: Actor) -> None:
    """Handle the passed deadline of a question. The caller, the sweeper, has locked head, run and wait."""
    approval = Approval.objects.select_for_update().get(wait=wait)
    known = DEADLINES.read(approval, wait)
    if DEADLINES.is_put_right(known.course, approval, wait, now):
        return
    if known.course.terms is None:
        expire(run, wait, now, by)
    elif known.course.is_endless:
        _keep_waiting(approval, wait, known, now, by)
    elif (step := _next_step(approval, known)) is not None:
        _escalate(approval, wait, known, step, "timeout", now, by)
    else:
        expire(run, wait, now, by)


def act_on_due(excluding: list[UUID], until: float) -> list[tuple[UUID, UUID, Exception]]:
    """Send reminders of approaching deadlines, and escalate questions whose deciders are all away.

    Skips the approvals in `excluding`. The cost is proportional to the number of due approvals. Returns the failures as
    approval, run and error.
    """
    with connection.cursor() as cursor:
        cursor.execute(_DUE, [excluding, BATCH])
        rows = cursor.fetchall()
    troubles = []
    for approval_id, run_id in rows:
        if time.monotonic() >= until:
            break
        try:
            _act_on(approval_id, run_id)
        except Exception as error:  # The failure of one question must not block the others. The sweeper reports it.
            log.exception("run %s: nobody can be reminded of approval %s", run_id, approval_id)
            troubles.append((approval_id, run_id, error))
    return troubles


@transaction.atomic
def _act_on(approval_id: UUID, run_id: UUID) -> None:
    if is_busy(run_id):  # don't wait for the current holder of the lock
        return
    _, run = locked(run_id, under=SWEEPER)
    wait = Wait.objects.select_for_update().get(approval=approval_id)
    approval = Approval.objects.select_for_update().get(pk=approval_id)
    now = database_now()
    is_over = approval.state != ApprovalState.OPEN or wait.resolved_at is not None or run.state in ENDED
    if is_over or run.state == State.PAUSED or approval.look_at is None or approval.look_at > now:
        return
    if wait.deadline <= now or halted_time.is_halted(run.pk):  # `on_due` handles the deadline itself
        return
    known = DEADLINES.read(approval, wait)
    step = _next_step(approval, known)
    if step is not None and known.course.terms and known.course.terms["at_once_if_away"] and _is_deserted(approval):
        _escalate(approval, wait, known, step, "away", now, SWEEPER)
        return
    due = DEADLINES.shifted(known.due, known.course, DEADLINES.stopped(known.course, wait, now))
    passed = [at for at in due if datetime.fromisoformat(at) <= now]
    if passed:
        _remind(approval, wait, known, len(passed), now)
    look_again(approval, next_look(due[len(passed) :]))


def _remind(approval: Approval, wait: Wait, known: Progress, of: int, now: datetime) -> None:
    """Send one reminder for all that became due since the last one."""
    event = e.ApprovalReminded(
        slot=wait.slot,
        approval_id=str(approval.id),
        cause="before",
        deadline=known.course.deadline.isoformat(),
        n=known.reminders,
        payload={"of": of},
    )
    _count_reminder(approval, now)
    journal(approval.run_id, event, by=SWEEPER)
    _notify("reminder", approval, wait, known.reminders)


def _keep_waiting(approval: Approval, wait: Wait, known: Progress, now: datetime, by: Actor) -> None:
    """Remind people of a question without a deadline, and schedule the next reminder."""
    terms = known.course.terms or {}
    deadline = known.course.next_reminder(now, versions.recorded_calendar(terms) if terms.get("calendar") else None)
    event = e.ApprovalReminded(
        slot=wait.slot,
        approval_id=str(approval.id),
        cause="no_deadline",
        deadline=deadline.isoformat(),
        n=known.reminders,
        payload={"at": now.isoformat()},
    )
    _count_reminder(approval, now)
    restart_deadline(approval, wait, deadline, now)
    journal(approval.run_id, event, by=by)
    _notify("reminder", approval, wait, known.reminders)


def _next_step(approval: Approval, known: Progress) -> Step | None:
    """Return the next escalation step whose queue can still be asked; None if there is none."""
    steps = (known.course.terms or {}).get("steps", [])
    items = {approval.queue, *known.went}  # taken from the journal, since the row could be forged
    for each in steps[known.course.escalated :]:
        queue = Queue.objects.filter(name=each["to"], state=Queue.State.OPEN).first()
        if queue is not None and queue.is_authentic and queue.name not in items:
            return Step(**each)
    return None


def _escalate(
    approval: Approval, wait: Wait, known: Progress, step: Step, cause: str, now: datetime, by: Actor
) -> None:
    """Escalate to another queue, with a deadline of its own."""
    terms = known.course.terms or {}
    calendar: Calendar | None = versions.recorded_calendar(terms)
    span = timedelta(minutes=step.minutes)
    deadline = (plus if calendar is None else calendar.after)(now, span)
    due = reminders(terms, calendar, now, span)
    place = [each["to"] for each in terms["steps"]].index(step.to)
    event = e.ApprovalEscalated(
        slot=wait.slot,
        approval_id=str(approval.id),
        to=step.to,
        cause=cause,
        deadline=deadline.isoformat(),
        n=known.escalations,
        payload={"step": place, "remind_at": due, "at": now.isoformat()},
    )
    approval.escalated_to = [*known.went, step.to]
    add_escalation(approval, _number(approval), step.to, cause, deadline, now)
    approval.save(update_fields=["escalated_to"])
    wait.also = approval.escalated_to
    wait.save(update_fields=["also"])
    restart_deadline(approval, wait, deadline, now)
    look_again(approval, now if terms["at_once_if_away"] else next_look(due))
    journal(approval.run_id, event, by=by)
    _notify("escalated", approval, wait, known.escalations)


def _number(approval: Approval) -> int:
    """Return the number of the next escalation. Forged rows count too."""
    return (Escalation.objects.filter(approval=approval).aggregate(last=Max("n"))["last"] or 0) + 1


def _is_deserted(approval: Approval) -> bool:
    last = approval.escalated_to[-1] if approval.escalated_to else approval.queue
    return absences.is_deserted(last)


def _notify(kind: str, approval: Approval, wait: Wait, n: int) -> None:
    features.notify(
        features.Notification(
            kind=kind, fact=f"{approval.pk}:{n}", run_id=approval.run_id, approval_id=approval.pk, wait_id=wait.pk
        )
    )


def _count_reminder(approval: Approval, now: datetime) -> None:
    approval.reminded, approval.reminded_at = approval.reminded + 1, now
    approval.save(update_fields=["reminded", "reminded_at"])
