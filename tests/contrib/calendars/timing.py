"""Calendars, timing of queues, and deputies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from approvals.models import Queue
from approvals.queue_models import Deputy
from durableagents.contrib.calendars import deputies
from durableagents.contrib.calendars import services as acts
from durableagents.contrib.calendars.models import Timing
from durableagents.contrib.calendars.services import CalendarBody, DeputyBody, TimingBody
from ledger.actors import Actor
from runs.journal.asked.queues import QUEUES
from tests.integration.approvals.setup import WHY

OFFICE = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-17:00")


def calendar(by: Actor, name: str = "DE", zone: str = "Europe/Berlin", **more: Any) -> Any:
    given = {"name": name, "zone": zone, "week": OFFICE, "justification": WHY} | more
    return acts.set_calendar(CalendarBody.model_validate(given), by=by)


def timing(by: Actor, queue: str = "finance_po", **said: Any) -> Timing:
    row = acts.set_timing(queue, TimingBody.model_validate({**said, "justification": WHY}), by=by)
    QUEUES.forget()
    return row


def at_once(queue: str = "finance_po", *steps: str, **said: Any) -> Timing:
    """Insert the same with steps of zero hours, which an administrator can't set."""
    row = Timing(
        queue=Queue.objects.get(name=queue),
        version=1,
        on_timeout="escalate",
        steps=[[to, 0] for to in steps],
        set_by="user:boss",
        set_at=timezone.now(),
        **said,
    )
    row.seal()
    row.save()
    QUEUES.forget()
    return row


def away(by: Actor, deputy: str, *, queue: str = "", days: float = 3, **more: Any) -> Deputy:
    body = DeputyBody(
        deputy=deputy, queue=queue, ends_at=timezone.now() + timedelta(days=days), justification=WHY, **more
    )
    return deputies.name_deputy(body, by=by)
