"""Start the run of a schedule's planned time, at most once.
Start, note and next time are one transaction under the schedule's lock; the note is unique per planned time."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, takewhile
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django_q.models import Schedule as Bell
from pydantic import ValidationError

from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError
from ledger.protected import ChangedOutside, check, seal
from ledger.web.roles import INTEGRATOR, OPERATOR, roles
from runs.engine.agents import registry
from runs.engine.budget import Budget
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.fleet.agent_versions import VersionChanged
from runs.models import Firing, Schedule
from runs.protected import SCHEDULE
from runs.services.bodies import OF_SCHEDULE
from runs.services.schedules import cron
from runs.services.schedules.cron import Cron
from runs.services.starts import keys
from runs.services.starts.keys import KeyBusy, KeyTaken, Wanted
from runs.services.version_choice import VersionClosed, elsewhere
from runs.services.wakeups import FIRE


def hang(schedule: Schedule) -> None:
    """Set the timer to the next planned time, or remove it."""
    if schedule.next_at is None:
        Bell.objects.filter(name=str(schedule.id)).delete()
        return
    Bell.objects.update_or_create(
        name=str(schedule.id),
        defaults={
            "func": FIRE,
            "args": f"'{schedule.id}'",
            "schedule_type": Bell.ONCE,
            "repeats": -1,
            "next_run": schedule.next_at,
        },
    )


# Later than this, a planned time was missed.
GRACE = timedelta(minutes=5)
# Older or more missed times are not caught up with.
OLDEST, MOST = timedelta(days=31), 100


@dataclass(frozen=True, slots=True)
class Due:
    """The planned time to start for, the last missed one and how many, and the next, which is after the missed ones."""

    start_for: datetime | None
    missed_at: datetime | None
    missed: int
    next_at: datetime | None


def due(cron: Cron, zone: ZoneInfo, next_at: datetime, now: datetime, rule: str) -> Due:
    """Return what is due at `now`, with `next_at` the first unhandled time, by `rule`: skip, once or all."""
    first = next_at
    too_old = 0
    if first < now - OLDEST:
        first, too_old = next(cron.after(now - OLDEST, zone)), 1  # perhaps more, uncounted
    late: deque[datetime] = deque(maxlen=MOST)
    in_time: list[datetime] = []
    n_late = 0
    for planned in takewhile(lambda moment: moment <= now, chain([first], cron.after(first, zone))):
        if planned < now - GRACE:
            late.append(planned)
            n_late += 1
        else:
            in_time.append(planned)
    wanted = _wanted_first(late, in_time, rule)
    kept = sum(planned in late for planned in wanted)
    given_up = [planned for planned in late if planned not in wanted]
    missed_at = given_up[-1] if given_up else next_at if too_old else None
    following = wanted[1] if len(wanted) > 1 else next(cron.after(max(now, first), zone), None)
    return Due(wanted[0] if wanted else None, missed_at, n_late - kept + too_old, following)


def _wanted_first(late: deque[datetime], in_time: list[datetime], rule: str) -> list[datetime]:
    if rule == "all":
        return [*late, *in_time][-MOST:]
    if rule == "once" and late and not in_time:
        return [late[-1]]
    return in_time


log = logging.getLogger("runs.services.schedules")
BATCH = 100
_STARTERS = (INTEGRATOR, OPERATOR)
_RULES = {"skip": "refuse", "queue": "queue", "replace": "replace"}
_DUE = """
    SELECT id FROM runs_schedule
    WHERE next_at <= statement_timestamp() - make_interval(secs => %s) AND NOT (id = ANY(%s::uuid[]))
    ORDER BY next_at LIMIT %s"""


def waiting(*, for_seconds: float = 0.0, besides: list[UUID] | None = None) -> list[UUID]:
    """Return schedules that have been due for so long, longest first."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE, [for_seconds, besides or [], BATCH])
        return [row[0] for row in cursor.fetchall()]


@transaction.atomic
def fire(schedule_id: UUID) -> bool:
    """Handle the first due planned time of a schedule. Raises KeyBusy, and what the database raises.
    Returns False if none is due, another process holds it, or no version of its agent is here."""
    rows = Schedule.objects.select_for_update(skip_locked=True).filter(pk=schedule_id, next_at__isnull=False)
    schedule, now = rows.first(), database_now()
    if schedule is None or schedule.next_at is None or schedule.next_at > now:
        return False
    try:
        registry.find(schedule.agent)
    except (UnknownAgent, UnknownVersion) as unknown:
        _note_trouble(schedule, unknown.detail)
        return False
    if newer := elsewhere(schedule.agent):
        _note_trouble(schedule, f"This process has not {newer}, which others drive: one of them starts it.")
        return False
    try:
        check(SCHEDULE, schedule.pk)
    except ChangedOutside as changed:
        _note_trouble(schedule, changed.detail)
        return False
    plan = due(cron.read(schedule.cron), cron.zone_of(schedule.zone), schedule.next_at, now, schedule.missed)
    schedule.next_at, schedule.trouble = plan.next_at, ""
    if plan.missed_at is not None and not schedule.firings.filter(planned_at=plan.missed_at).exists():
        _note(schedule, plan.missed_at, Firing.Outcome.MISSED, now=now, n=plan.missed)
    if plan.start_for is not None and not schedule.firings.filter(planned_at=plan.start_for).exists():
        try:
            _start(schedule, plan.start_for, now=now)
        except (UnknownVersion, VersionChanged) as other:
            _note_trouble(schedule, other.detail)
            return False
    columns = ("next_at", "trouble", "updated_at", "stopped")
    # Locked and checked above, so this needs none of what `save` does for the row's code.
    Schedule.objects.filter(pk=schedule.pk).update(**{name: getattr(schedule, name) for name in columns})
    seal(SCHEDULE, schedule.pk)
    hang(schedule)
    return True


def _start(schedule: Schedule, planned_at: datetime, *, now: datetime) -> None:
    """Start the run of a planned time as the schedule's owner, and note the outcome."""
    by = starts_as(schedule)
    if by is None:
        stop(schedule, "whoever set it may start no runs any more", now=now)
        _note(schedule, planned_at, Firing.Outcome.REFUSED, now=now, why=schedule.stopped)
        return
    try:
        with transaction.atomic():
            begun = keys.start(_wanted(schedule, planned_at), by=by, most=_budget(schedule.most))
    except KeyTaken as taken:
        run = UUID(taken.extra["run"])
        _note(schedule, planned_at, Firing.Outcome.SKIPPED, now=now, run=run, why="the run before it has not ended")
    except (KeyBusy, UnknownVersion, VersionChanged):  # another process may have what this one lacks
        raise
    except (VersionClosed, ChangedOutside) as closed:  # not the schedule's fault: the next planned time tries again
        _note(schedule, planned_at, Firing.Outcome.REFUSED, now=now, why=closed.detail)
    except (DurableAgentsError, ValidationError) as refused:
        told = refused.detail if isinstance(refused, DurableAgentsError) else "its budget can't be read"
        stop(schedule, told, now=now)
        _note(schedule, planned_at, Firing.Outcome.REFUSED, now=now, why=told)
    else:
        _note(schedule, planned_at, Firing.Outcome.STARTED, now=now, run=begun.run.id)


def _wanted(schedule: Schedule, planned_at: datetime) -> Wanted:
    is_alone = schedule.overlap != Schedule.Overlap.ALLOW
    return Wanted(
        schedule.agent,
        schedule.input,
        schedule.tags,
        _budget(schedule.budget),
        business_key=f"{OF_SCHEDULE}{schedule.id}" if is_alone else "",
        on_conflict=_RULES.get(schedule.overlap, "refuse"),
        schedule=schedule.id,
        planned_at=planned_at,
    )


def _budget(stored: object) -> Budget | None:
    return None if stored is None else Budget.model_validate(stored)


def starts_as(schedule: Schedule) -> Actor | None:
    """Return the owner under a role that may start runs today; None if they have none or are not active."""
    person = get_user_model().objects.filter(pk=schedule.owner).first()
    held = roles(person)
    role = next((role for role in _STARTERS if role in held), None)
    if person is None or role is None:
        return None
    return Actor("user", person.get_username(), role=role, auth="schedule", person=schedule.owner)


def stop(schedule: Schedule, why: str, *, now: datetime) -> None:
    """Stop a schedule until someone resumes it; the caller saves it."""
    schedule.next_at, schedule.stopped, schedule.updated_at = None, why[:2000], now
    log.warning("schedule %s (%s): stopped: %s", schedule.id, schedule.name, why)


def _note(
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


def _note_trouble(schedule: Schedule, what: str) -> None:
    """Note why it wasn't started here; it stays due, because another process may have what this one lacks."""
    if schedule.trouble != what:
        log.warning("schedule %s (%s): due, and not started here: %s", schedule.id, schedule.name, what)
        schedule.trouble = what
        schedule.save(update_fields=["trouble"])
