"""Setting the priority of a run. Runs with a higher priority are claimed first."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.conf import settings
from django.db import transaction
from pydantic import Field

from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from ledger.web.roles import OPERATOR
from runs.models import ENDED, Run
from runs.services import wakeups
from runs.services.allowed import OVER
from runs.services.bodies import SteerBody

HIGHEST, LOWEST = 100, -100


class PriorityBody(SteerBody):
    """A run's priority; default 0."""

    priority: Annotated[int, Field(ge=LOWEST, le=HIGHEST)] = Field(
        description="Runs with a higher priority are claimed first."
    )


class RunHasEnded(DurableAgentsError):
    """The run has ended, so its priority can't be set."""

    status, code, title = 409, "illegal-state", "The state does not allow this"


@transaction.atomic
def set_priority(run_id: UUID, priority: int, *, by: Actor, justification: str) -> Run:
    """Set a run's priority. Raises InvalidInput, RunHasEnded, JustificationRequired, NotFound."""
    why = justified("priority", justification)
    run = Run.objects.select_for_update().filter(pk=run_id).first()
    if run is None:
        raise NotFound("run", run_id)
    if run.state in ENDED:
        raise RunHasEnded(OVER)
    _check(priority, highest=HIGHEST)
    return _store(run, priority, by=by, why=why)


def start_with(run: Run, priority: int, *, by: Actor) -> None:
    """Set the priority that a start requests, in its transaction.
    Raises InvalidInput above the caller's maximum."""
    if priority:
        _check(priority, highest=HIGHEST if by.role == OPERATOR else settings.DURABLEAGENTS.priority)
        _store(run, priority, by=by, why="")


def _check(priority: int, *, highest: int) -> None:
    if not LOWEST <= priority <= highest:
        errors = [{"field": "priority", "problem": f"is {priority}", "fix": f"from {LOWEST} to {highest}"}]
        raise InvalidInput(f"Priority {priority} is out of range: you may set {LOWEST} to {highest}.", errors=errors)


def _store(run: Run, priority: int, *, by: Actor, why: str) -> Run:
    before, run.priority = {"priority": run.priority}, priority
    Run.objects.filter(pk=run.pk).update(priority=priority)
    acted("priority", by=by, subject=f"run {run.pk}", justification=why, before=before, after={"priority": priority})
    wakeups.ring(run.pk)
    return run
