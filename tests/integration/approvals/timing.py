"""Queues with their own deadlines."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pgtrigger
from django.utils import timezone

from approvals.models import Approval, Queue
from durableagents import Context, End, Expired, Rejected
from durableagents.contrib.calendars import services as acts
from durableagents.contrib.calendars.clock import DEADLINES
from durableagents.contrib.calendars.models import Timing
from durableagents.contrib.calendars.progress import next_look
from durableagents.contrib.calendars.services import CalendarBody, TimingBody
from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from runs.engine.agents import Agent
from runs.journal.asked.queues import QUEUES
from runs.models import Run, Wait
from runs.workers import timers
from tests.integration.approvals.setup import WHY
from tests.integration.runs.aging import earlier
from tests.integration.runs.stage import events
from tests.world import Item, Notes, Toolbox, agent_of

OFFICE = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-17:00")
SOON = timedelta(milliseconds=1)


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


def paying(tools: Toolbox, **gate: Any) -> Agent:
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, **gate))

    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(pay, Item(name="po", amount=5000))).ref)
        except Expired as nobody:
            return End(f"nobody answered: {nobody.verdict}")
        except Rejected as no:
            return End(f"no by {no.by}")

    return agent_of(node, tools=[pay])


def make_late(approval: Approval, at: datetime | None = None) -> None:
    """Give it less time, so that it ended a second ago or ends `at` that moment, in journal and rows."""
    wait = Wait.objects.get(pk=approval.wait_id)
    past = at or database_now() - timedelta(seconds=1)
    earlier(
        approval.run_id,
        DEADLINES.read(Approval.objects.get(pk=approval.pk), wait).course.deadline - past,
        str(approval.pk),
    )
    now = Approval.objects.get(pk=approval.pk)
    due = DEADLINES.read(now, wait).due
    with pgtrigger.ignore("approvals.Approval:terms_are_frozen"):
        Approval.objects.filter(pk=approval.pk).update(deadline=past, look_at=next_look(due), timing=_terms(now))
    Wait.objects.filter(pk=approval.wait_id).update(deadline=past)


def _terms(approval: Approval) -> Any:
    items = [x for x in events(approval.run, e.ApprovalTimed) if x.approval_id == str(approval.pk)]
    return items[-1].payload if items else None


def due(run: Run) -> None:
    for question in Approval.objects.filter(run=run, state="open"):
        make_late(question)
    Wait.objects.filter(run=run, resolved_at=None).update(deadline=database_now() - timedelta(seconds=1))


def sweep() -> None:
    timers._troubled.clear()
    timers.sweep()
