"""Creating, changing, pausing and deleting schedules, each with an act record; integrators their own, operators all."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.web.roles import OPERATOR
from ledger.web.seeing.viewers import viewer
from runs.engine.agents import registry
from runs.engine.budget import Budget
from runs.models import Schedule
from runs.services import lifecycle
from runs.services.bodies import ScheduleBody
from runs.services.budgets.starting import budget_for
from runs.services.schedules import cron, firing

MOST = 1000  # per installation
_SHOWN = ("name", "agent", "cron", "zone", "missed", "overlap", "tags", "budget", "set_by", "is_paused", "stopped")


class Changed(DurableAgentsError):
    """The schedule was changed since it was read."""

    status, code, title = 409, "stale-schedule", "The schedule has changed"

    def __init__(self, schedule: Schedule) -> None:
        at = schedule.updated_at.strftime("%Y-%m-%d %H:%M:%S")
        super().__init__(
            f"The schedule was changed at {at} UTC, after you read it. Nothing was done: read it again, then change it."
        )


class NotInThisState(DurableAgentsError):
    """The schedule is in that state already."""

    status, code, title = 409, "illegal-state", "The schedule's state does not allow this"


def find(schedule_id: UUID) -> Schedule:
    """Return a schedule that was not deleted. Raises NotFound."""
    found = Schedule.objects.filter(shown(), pk=schedule_id, deleted_at__isnull=True).first()
    if found is None:
        raise NotFound("schedule", schedule_id)
    return found


def shown() -> Q:
    """Return the condition for the schedules the viewer may see."""
    who = viewer()
    return Q() if who.sees_all else Q(owner=who.person)


def reads(schedule: Schedule) -> bool:
    who = viewer()
    return who.reads_all or (who.person is not None and schedule.owner == who.person)


def may(schedule: Schedule, role: str, person: int | None) -> bool:
    return role == OPERATOR or (person is not None and person == schedule.owner)


def check(schedule: Schedule, *, by: Actor) -> None:
    """Raises Forbidden for actors who may not change it."""
    if not may(schedule, by.role, by.person):
        raise Forbidden("Only an operator, or the integrator who set it, may change a schedule.")


@transaction.atomic
def create(body: ScheduleBody, *, by: Actor, most: Budget | None = None) -> Schedule:
    """Create a schedule. `most` is what the caller may give a run at most.
    Raises InvalidInput by field, UnknownAgent, UnknownVersion."""
    if Schedule.objects.filter(deleted_at__isnull=True).count() >= MOST:
        errors = [{"field": "name", "problem": f"there are {MOST}", "fix": "delete one first"}]
        raise InvalidInput(f"Limit reached: at most {MOST} schedules. Delete one first.", errors=errors)
    now = database_now()
    schedule = Schedule(created_at=now)
    _set(schedule, body, by=by, most=most, now=now)
    schedule.save(force_insert=True)
    return _done("schedule", schedule, by=by, before={}, why="")


@transaction.atomic
def change(
    schedule_id: UUID, body: ScheduleBody, *, by: Actor, most: Budget | None = None, seen: datetime | None = None
) -> Schedule:
    """Replace a schedule's settings; missed times up to now are skipped. `seen` is when the caller saw it last changed.
    It then starts runs as the caller, unless agent and input stay the same and the previous owner may still start
    runs. Raises what `create` raises, Changed, Forbidden, NotFound."""
    schedule, before = _locked(schedule_id, by=by)
    if seen is not None and seen != schedule.updated_at:
        raise Changed(schedule)
    _set(schedule, body, by=by, most=most, now=database_now())
    schedule.save()
    return _done("schedule_change", schedule, by=by, before=before, why="")


@transaction.atomic
def pause(schedule_id: UUID, *, by: Actor, justification: str) -> Schedule:
    """Pause a schedule. Raises JustificationRequired, NotInThisState, Forbidden, NotFound."""
    why = justified("pause", justification)
    schedule, before = _locked(schedule_id, by=by)
    if schedule.is_paused:
        raise NotInThisState("The schedule is already paused.")
    schedule.is_paused, schedule.next_at, schedule.updated_at = True, None, database_now()
    schedule.save()
    return _done("schedule_pause", schedule, by=by, before=before, why=why)


@transaction.atomic
def resume(schedule_id: UUID, *, by: Actor, justification: str) -> Schedule:
    """Resume a schedule with its next planned time; missed ones are skipped. Raises what `pause` raises."""
    why = justified("resume", justification)
    schedule, before = _locked(schedule_id, by=by)
    if not schedule.is_paused and not schedule.stopped:
        raise NotInThisState("The schedule is neither paused nor stopped.")
    schedule.is_paused, schedule.stopped, schedule.updated_at = False, "", database_now()
    schedule.next_at = upcoming(schedule, schedule.updated_at)[0]
    schedule.save()
    return _done("schedule_resume", schedule, by=by, before=before, why=why)


@transaction.atomic
def delete(schedule_id: UUID, *, by: Actor, justification: str) -> Schedule:
    """Delete a schedule; its runs and records stay. Raises what `pause` raises."""
    why = justified("delete", justification)
    schedule, before = _locked(schedule_id, by=by)
    schedule.deleted_at = schedule.updated_at = database_now()
    schedule.next_at = None
    schedule.save()
    return _done("schedule_delete", schedule, by=by, before=before, why=why)


def upcoming(schedule: Schedule, now: datetime, n: int = 3) -> list[datetime]:
    """Return the next planned times after a moment."""
    named = cron.read(schedule.cron).after(now, cron.zone_of(schedule.zone))
    return [moment for _, moment in zip(range(n), named, strict=False)]


def _locked(schedule_id: UUID, *, by: Actor) -> tuple[Schedule, dict[str, Any]]:
    schedule = Schedule.objects.select_for_update().filter(shown(), pk=schedule_id, deleted_at__isnull=True).first()
    if schedule is None:
        raise NotFound("schedule", schedule_id)
    check(schedule, by=by)
    return schedule, _snapshot(schedule)


def wrong_times(body: ScheduleBody) -> list[dict[str, str]]:
    """Return the problems of the cron expression and its time zone."""
    errors = []
    try:
        cron.read(body.cron)
    except cron.InvalidCron as wrong:
        errors.append({"field": "cron", "problem": str(wrong), "fix": "such as 30 6 * * mon-fri"})
    try:
        cron.zone_of(body.zone)
    except cron.UnknownZone as wrong:
        errors.append({"field": "zone", "problem": str(wrong), "fix": "such as UTC or Europe/Berlin"})
    return errors


def _set(schedule: Schedule, body: ScheduleBody, *, by: Actor, most: Budget | None, now: datetime) -> None:
    agent = registry.find(body.agent)
    if errors := wrong_times(body):
        problem = f"{errors[0]['field']} {errors[0]['problem']}"
        raise InvalidInput(f"Invalid schedule: {problem}.", errors=errors)
    input_ = lifecycle.checked(agent, body.input)
    budget_for(agent, body.budget, tags=body.tags, most=most)
    if by.person is None:
        raise Forbidden("Only an account may create schedules, because their runs start with its rights.")
    budget = None if body.budget is None else body.budget.model_dump(mode="json", exclude_none=True)
    is_theirs = _stays(schedule, body.agent, input_, by=by)
    if not is_theirs:
        schedule.owner, schedule.set_by = by.person, by.ref
    if not is_theirs or budget != schedule.budget:
        schedule.most = None if most is None else most.model_dump(mode="json", exclude_none=True)
    schedule.name, schedule.agent, schedule.input, schedule.budget = body.name, body.agent, input_, budget
    schedule.cron, schedule.zone, schedule.missed, schedule.overlap = body.cron, body.zone, body.missed, body.overlap
    schedule.tags, schedule.updated_at = body.tags, now
    schedule.stopped = schedule.trouble = ""
    schedule.next_at = None if schedule.is_paused else upcoming(schedule, now)[0]


def _stays(schedule: Schedule, agent: str, input_: Any, *, by: Actor) -> bool:
    """Return whether someone else's schedule keeps its owner: agent and input stay, and they may still start runs.
    The person who chose agent and input counts as the starter of its runs, and can't decide in them."""
    if schedule._state.adding or by.person == schedule.owner or firing.starts_as(schedule) is None:
        return False
    return _text(schedule.agent, schedule.input) == _text(agent, input_)


def _text(agent: str, input_: Any) -> str:
    return json.dumps([agent, input_], sort_keys=True)  # otherwise 1 and true would be equal


def _snapshot(schedule: Schedule) -> dict[str, Any]:
    return {name: getattr(schedule, name) for name in _SHOWN}


def _done(action: str, schedule: Schedule, *, by: Actor, before: dict[str, Any], why: str) -> Schedule:
    firing.hang(schedule)
    subject = f"schedule {schedule.id}"
    acted(action, by=by, subject=subject, justification=why, before=before, after=_snapshot(schedule))
    return schedule
