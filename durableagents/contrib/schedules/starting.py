"""Starts the runs of planned times that are due, each at most once.

Start, result and next time are written in one transaction under the schedule's lock, and there can be only one result
per planned time."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, takewhile
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.auth import get_user_model
from django.db import transaction
from pydantic import ValidationError

from durableagents.contrib.schedules import cron
from durableagents.contrib.schedules.cron import Cron
from durableagents.contrib.schedules.models import PROTECTED, Firing, Schedule
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, first_line
from ledger.protected import ChangedOutside, check, seal
from ledger.web.roles import INTEGRATOR, OPERATOR, roles
from runs.engine.agents import registry
from runs.engine.budget import Budget
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.fleet.agent_versions import VersionChanged
from runs.journal.database_errors import is_refusal, is_transient
from runs.services.bodies import OF_SCHEDULE
from runs.services.starts import keys
from runs.services.starts.keys import KeyBusy, KeyTaken, Wanted
from runs.services.version_choice import VersionClosed, elsewhere

log = logging.getLogger("durableagents.contrib.schedules")
IS_DUE = "EXISTS (SELECT 1 FROM runs_schedule WHERE next_at <= statement_timestamp())"
BATCH_SIZE = 100
# This many missed times of one schedule are handled in a row before other schedules get their turn.
MAX_STARTS_IN_A_ROW = 20
RETRY_SECONDS = 30.0
# A planned time counts as missed after this delay.
GRACE = timedelta(minutes=5)
# Missed times that are older than this, or exceed this number, are skipped.
MAX_AGE, MAX_MISSED = timedelta(days=31), 100
_STARTERS = (INTEGRATOR, OPERATOR)
_CONFLICT_RULES = {"skip": "refuse", "queue": "queue", "replace": "replace"}
# Schedules that raised an error in this process, with the time until which they are skipped.
_failed: dict[UUID, float] = {}


def start_all_due() -> None:
    """Start all runs that are due (a periodic job of workers). Several workers may do so at the same time."""
    now = time.monotonic()
    for schedule_id in [failed for failed, until in _failed.items() if until <= now]:
        del _failed[schedule_id]
    due = Schedule.objects.filter(next_at__lte=database_now()).exclude(pk__in=list(_failed)).order_by("next_at")
    for schedule_id in list(due.values_list("pk", flat=True)[:BATCH_SIZE]):
        start_all_due_of(schedule_id)


def start_all_due_of(schedule_id: UUID) -> int:
    """Start the due runs of one schedule; return the number of handled planned times.

    A start that fails stays due."""
    try:
        for n in range(MAX_STARTS_IN_A_ROW):
            if not start_next_due(schedule_id):
                return n
    except Exception as error:
        if is_transient(error) and not is_refusal(error):
            raise
        log.exception("schedule %s: a due run can't be started; trying again", schedule_id)
        _failed[schedule_id] = time.monotonic() + RETRY_SECONDS
        Schedule.objects.filter(pk=schedule_id).update(trouble=first_line(error)[:2000])
        return 0
    return MAX_STARTS_IN_A_ROW


@dataclass(frozen=True, slots=True)
class Due:
    """The planned times that are due.

    `start_for` is the planned time for which to start a run. `missed` counts the times that are skipped, and
    `missed_at` is the last of them. `next_at` is the planned time to handle next."""

    start_for: datetime | None
    missed_at: datetime | None
    missed: int
    next_at: datetime | None


def find_due(cron: Cron, zone: ZoneInfo, next_at: datetime, now: datetime, rule: str) -> Due:
    """Return the times due at `now`, by the `rule` for missed times (skip, once or all).

    `next_at` is the first planned time that is not handled yet."""
    first = next_at
    too_old = 0
    if first < now - MAX_AGE:
        first, too_old = next(cron.after(now - MAX_AGE, zone)), 1  # there may be more, which are not counted
    late: deque[datetime] = deque(maxlen=MAX_MISSED)
    in_time: list[datetime] = []
    n_late = 0
    for planned in takewhile(lambda moment: moment <= now, chain([first], cron.after(first, zone))):
        if planned < now - GRACE:
            late.append(planned)
            n_late += 1
        else:
            in_time.append(planned)
    wanted = _apply_rule(late, in_time, rule)
    kept = sum(planned in late for planned in wanted)
    given_up = [planned for planned in late if planned not in wanted]
    missed_at = given_up[-1] if given_up else next_at if too_old else None
    following = wanted[1] if len(wanted) > 1 else next(cron.after(max(now, first), zone), None)
    return Due(wanted[0] if wanted else None, missed_at, n_late - kept + too_old, following)


def _apply_rule(late: deque[datetime], in_time: list[datetime], rule: str) -> list[datetime]:
    if rule == "all":
        return [*late, *in_time][-MAX_MISSED:]
    if rule == "once" and late and not in_time:
        return [late[-1]]
    return in_time


@transaction.atomic
def start_next_due(schedule_id: UUID) -> bool:
    """Handle the first due planned time of a schedule; return whether one was handled.

    No time is handled if none is due, another process holds the schedule, or no version of its agent is installed here.
    Raises KeyBusy, and errors of the database."""
    rows = Schedule.objects.select_for_update(skip_locked=True).filter(pk=schedule_id, next_at__isnull=False)
    schedule, now = rows.first(), database_now()
    if schedule is None or schedule.next_at is None or schedule.next_at > now:
        return False
    try:
        registry.find(schedule.agent)
        check(PROTECTED, schedule.pk)
    except (UnknownAgent, UnknownVersion, ChangedOutside) as refused:
        return _leave_due(schedule, refused.detail)
    if newer := elsewhere(schedule.agent):
        return _leave_due(
            schedule, f"This process does not have {newer}. A process that has that version starts the run."
        )
    plan = find_due(cron.read(schedule.cron), cron.zone_of(schedule.zone), schedule.next_at, now, schedule.missed)
    schedule.next_at, schedule.trouble = plan.next_at, ""
    if plan.missed_at is not None and not schedule.firings.filter(planned_at=plan.missed_at).exists():
        _record(schedule, plan.missed_at, Firing.Outcome.MISSED, now=now, n=plan.missed)
    if plan.start_for is not None and not schedule.firings.filter(planned_at=plan.start_for).exists():
        try:
            _start(schedule, plan.start_for, now=now)
        except (UnknownVersion, VersionChanged) as other:
            return _leave_due(schedule, other.detail)
    columns = ("next_at", "trouble", "updated_at", "stopped")
    # The row was locked and checked above, so `save` and its check of the code are not needed.
    Schedule.objects.filter(pk=schedule.pk).update(**{name: getattr(schedule, name) for name in columns})
    seal(PROTECTED, schedule.pk)
    return True


def _start(schedule: Schedule, planned_at: datetime, *, now: datetime) -> None:
    """Start the run of a planned time with the owner's rights, and record the result."""
    by = owner_of(schedule)
    if by is None:
        _stop(schedule, "The account that set the schedule may no longer start runs.", now=now)
        _record(schedule, planned_at, Firing.Outcome.REFUSED, now=now, why=schedule.stopped)
        return
    try:
        with transaction.atomic():
            begun = keys.start(_wanted(schedule, planned_at), by=by, most=_budget(schedule.most))
    except KeyTaken as taken:
        run = UUID(taken.extra["run"])
        _record(schedule, planned_at, Firing.Outcome.SKIPPED, now=now, run=run, why="The previous run has not ended.")
    except (KeyBusy, UnknownVersion, VersionChanged):  # another process may have the version, or succeed later
        raise
    except (VersionClosed, ChangedOutside) as closed:
        # The schedule isn't at fault, so the next planned time tries again.
        _record(schedule, planned_at, Firing.Outcome.REFUSED, now=now, why=closed.detail)
    except (DurableAgentsError, ValidationError) as refused:
        why = refused.detail if isinstance(refused, DurableAgentsError) else "The schedule's budget can't be read."
        _stop(schedule, why, now=now)
        _record(schedule, planned_at, Firing.Outcome.REFUSED, now=now, why=why)
    else:
        _record(schedule, planned_at, Firing.Outcome.STARTED, now=now, run=begun.run.id)


def _wanted(schedule: Schedule, planned_at: datetime) -> Wanted:
    is_alone = schedule.overlap != Schedule.Overlap.ALLOW
    return Wanted(
        schedule.agent,
        schedule.input,
        schedule.tags,
        _budget(schedule.budget),
        business_key=f"{OF_SCHEDULE}{schedule.id}" if is_alone else "",
        on_conflict=_CONFLICT_RULES.get(schedule.overlap, "refuse"),
        schedule=schedule.id,
        planned_at=planned_at,
    )


def _budget(stored: object) -> Budget | None:
    return None if stored is None else Budget.model_validate(stored)


def owner_of(schedule: Schedule) -> Actor | None:
    """Return the owner in a role that may start runs now; None if they have no such role or are not active."""
    person = get_user_model().objects.filter(pk=schedule.owner).first()
    held = roles(person)
    role = next((role for role in _STARTERS if role in held), None)
    if person is None or role is None:
        return None
    return Actor("user", person.get_username(), role=role, auth="schedule", person=schedule.owner)


def _stop(schedule: Schedule, why: str, *, now: datetime) -> None:
    """Stop a schedule until a person resumes it. The caller saves it."""
    schedule.next_at, schedule.stopped, schedule.updated_at = None, why[:2000], now
    log.warning("schedule %s (%s): stopped: %s", schedule.id, schedule.name, why)


def _record(
    schedule: Schedule,
    planned_at: datetime,
    outcome: str,
    *,
    now: datetime,
    run: UUID | None = None,
    why: str = "",
    n: int = 1,
) -> None:
    Firing.objects.create(
        schedule=schedule, planned_at=planned_at, at=now, outcome=outcome, run_id=run, why=why[:2000], n=n
    )


def _leave_due(schedule: Schedule, why: str) -> bool:
    """Record why the run wasn't started here, and keep the planned time due, because another process may start it.

    Returns False.
    """
    if schedule.trouble != why:
        log.warning("schedule %s (%s): due, but not started here: %s", schedule.id, schedule.name, why)
        schedule.trouble = why
        schedule.save(update_fields=["trouble"])
    return False
