"""Creates, changes, pauses, resumes and deletes schedules, each with a record.

Operators may change all schedules, integrators only their own."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import transaction
from pydantic import Field

from durableagents.contrib.schedules import cron, starting
from durableagents.contrib.schedules.models import Schedule
from durableagents.contrib.schedules.queries import visible
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.web.bodies import Strict
from ledger.web.roles import OPERATOR
from runs.engine.agents import registry
from runs.engine.budget import Budget
from runs.services import lifecycle
from runs.services.bodies import Tags
from runs.services.budgets.starting import budget_for

MAX_SCHEDULES = 1000
_RECORDED = ("name", "agent", "cron", "zone", "missed", "overlap", "tags", "budget", "set_by", "is_paused", "stopped")


class ScheduleBody(Strict):
    """A schedule: what it starts, and at which times, by a cron expression and a time zone."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(description="Name of the schedule.")
    agent: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Agent to start, with or without @version."
    )
    input: Any = Field(description="Input that fits the agent's schema.")
    cron: Annotated[str, Field(min_length=1, max_length=200, description="Minute, hour, day, month, day of the week.")]
    zone: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default="UTC", description="IANA time zone of the cron expression."
    )
    missed: Literal["skip", "once", "all"] = Field(
        default="skip", description="What happens to planned times that were missed."
    )
    overlap: Literal["skip", "queue", "replace", "allow"] = Field(
        default="skip", description="What happens if the previous run has not ended."
    )
    tags: Tags = Field(default=[], description="Tags of the runs.")
    budget: Budget | None = Field(default=None, description="Caps of the runs.")


class StaleSchedule(DurableAgentsError):
    """The schedule was changed since it was read."""

    status, code, title = 409, "stale-schedule", "The schedule has changed"

    def __init__(self, schedule: Schedule) -> None:
        at = schedule.updated_at.strftime("%Y-%m-%d %H:%M:%S")
        super().__init__(
            f"The schedule was changed at {at} UTC, after you read it. Read it again before you change it."
        )


class IllegalScheduleState(DurableAgentsError):
    """The schedule is in that state already."""

    status, code, title = 409, "illegal-state", "The schedule's state does not allow this"


def can_change(owner: int | None, role: str, person: int | None) -> bool:
    """Return whether someone in this role may change a schedule with this owner."""
    return role == OPERATOR or (person is not None and person == owner)


def check_may_change(schedule: Schedule, *, by: Actor) -> None:
    """Check that the actor may change the schedule. Raises Forbidden."""
    if not can_change(schedule.owner, by.role, by.person):
        raise Forbidden("Only an operator, or the integrator who set it, may change a schedule.")


@transaction.atomic
def create(body: ScheduleBody, *, by: Actor, most: Budget | None = None) -> Schedule:
    """Create a schedule. `most` is the largest budget that the caller may grant a run.

    Raises InvalidInput by field, UnknownAgent, UnknownVersion."""
    if Schedule.objects.filter(deleted_at__isnull=True).count() >= MAX_SCHEDULES:
        errors = [{"field": "name", "problem": f"there are {MAX_SCHEDULES}", "fix": "delete one first"}]
        raise InvalidInput(f"Limit reached: at most {MAX_SCHEDULES} schedules. Delete one first.", errors=errors)
    now = database_now()
    schedule = Schedule(created_at=now)
    _set(schedule, body, by=by, most=most, now=now)
    schedule.save(force_insert=True)
    return _record("schedule", schedule, by=by, before={})


@transaction.atomic
def change(
    schedule_id: UUID, body: ScheduleBody, *, by: Actor, most: Budget | None = None, seen: datetime | None = None
) -> Schedule:
    """Replace a schedule's settings. Planned times up to now are skipped.

    `seen` is the schedule's `updated_at` when the caller read it. The caller becomes the owner, with whose rights runs
    are started, unless agent and input stay the same and the previous owner may still start runs. Raises the errors of
    `create`, StaleSchedule, Forbidden, NotFound."""
    schedule, before = _locked(schedule_id, by=by)
    if seen is not None and seen != schedule.updated_at:
        raise StaleSchedule(schedule)
    _set(schedule, body, by=by, most=most, now=database_now())
    schedule.save()
    return _record("schedule_change", schedule, by=by, before=before)


@transaction.atomic
def pause(schedule_id: UUID, *, by: Actor, justification: str) -> Schedule:
    """Pause a schedule. Raises JustificationRequired, IllegalScheduleState, Forbidden, NotFound."""
    why = justified("pause", justification)
    schedule, before = _locked(schedule_id, by=by)
    if schedule.is_paused:
        raise IllegalScheduleState("The schedule is already paused.")
    schedule.is_paused, schedule.next_at, schedule.updated_at = True, None, database_now()
    schedule.save()
    return _record("schedule_pause", schedule, by=by, before=before, why=why)


@transaction.atomic
def resume(schedule_id: UUID, *, by: Actor, justification: str) -> Schedule:
    """Resume a schedule from its next planned time; missed ones are skipped. Raises what `pause` raises."""
    why = justified("resume", justification)
    schedule, before = _locked(schedule_id, by=by)
    if not schedule.is_paused and not schedule.stopped:
        raise IllegalScheduleState("The schedule is neither paused nor stopped.")
    schedule.is_paused, schedule.stopped, schedule.updated_at = False, "", database_now()
    schedule.next_at = _next_after(schedule, schedule.updated_at)
    schedule.save()
    return _record("schedule_resume", schedule, by=by, before=before, why=why)


@transaction.atomic
def delete(schedule_id: UUID, *, by: Actor, justification: str) -> Schedule:
    """Delete a schedule. The schedule's runs and records are kept. Raises what `pause` raises."""
    why = justified("delete", justification)
    schedule, before = _locked(schedule_id, by=by)
    schedule.deleted_at = schedule.updated_at = database_now()
    schedule.next_at = None
    schedule.save()
    return _record("schedule_delete", schedule, by=by, before=before, why=why)


def time_errors(body: ScheduleBody) -> list[dict[str, str]]:
    """Return the errors in the cron expression and the time zone."""
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


def _next_after(schedule: Schedule, now: datetime) -> datetime:
    return next(cron.read(schedule.cron).after(now, cron.zone_of(schedule.zone)))


def _locked(schedule_id: UUID, *, by: Actor) -> tuple[Schedule, dict[str, Any]]:
    schedule = Schedule.objects.select_for_update().filter(visible(), pk=schedule_id).first()
    if schedule is None:
        raise NotFound("schedule", schedule_id)
    check_may_change(schedule, by=by)
    return schedule, _recorded(schedule)


def _set(schedule: Schedule, body: ScheduleBody, *, by: Actor, most: Budget | None, now: datetime) -> None:
    agent = registry.find(body.agent)
    if errors := time_errors(body):
        problem = f"{errors[0]['field']} {errors[0]['problem']}"
        raise InvalidInput(f"Invalid schedule: {problem}.", errors=errors)
    input_ = lifecycle.checked(agent, body.input)
    budget_for(agent, body.budget, tags=body.tags, most=most)
    if by.person is None:
        raise Forbidden("Only an account may create schedules, because their runs start with its rights.")
    budget = None if body.budget is None else body.budget.model_dump(mode="json", exclude_none=True)
    keeps_owner = _keeps_owner(schedule, body.agent, input_, by=by)
    if not keeps_owner:
        schedule.owner, schedule.set_by = by.person, by.ref
    if not keeps_owner or budget != schedule.budget:
        schedule.most = None if most is None else most.model_dump(mode="json", exclude_none=True)
    schedule.name, schedule.agent, schedule.input, schedule.budget = body.name, body.agent, input_, budget
    schedule.cron, schedule.zone, schedule.missed, schedule.overlap = body.cron, body.zone, body.missed, body.overlap
    schedule.tags, schedule.updated_at = body.tags, now
    schedule.stopped = schedule.trouble = ""
    schedule.next_at = None if schedule.is_paused else _next_after(schedule, now)


def _keeps_owner(schedule: Schedule, agent: str, input_: Any, *, by: Actor) -> bool:
    """Return whether a schedule that someone else changes keeps its owner.

    The owner is kept if agent and input stay the same, and the owner may still start runs. The person who chose agent
    and input counts as the starter of the runs, and so can't decide their approvals."""
    if schedule._state.adding or by.person == schedule.owner or starting.owner_of(schedule) is None:
        return False
    # Compared as text, because 1 and true are equal in Python.
    before, after = (json.dumps(pair, sort_keys=True) for pair in ([schedule.agent, schedule.input], [agent, input_]))
    return before == after


def _recorded(schedule: Schedule) -> dict[str, Any]:
    return {name: getattr(schedule, name) for name in _RECORDED}


def _record(act: str, schedule: Schedule, *, by: Actor, before: dict[str, Any], why: str = "") -> Schedule:
    subject = f"schedule {schedule.id}"
    acted(act, by=by, subject=subject, justification=why, before=before, after=_recorded(schedule))
    return schedule
