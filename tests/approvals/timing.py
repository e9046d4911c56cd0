"""Queues with deadlines of their own, for the stories about what time brings."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.utils import timezone

from approvals.deadlines import acts
from approvals.deadlines.bodies import CalendarBody, TimingBody
from approvals.models import Approval, Queue, Timing
from durableagents import Context, End, Expired, Rejected
from ledger.actors import Actor
from ledger.clock import database_now
from runs.engine.agents import Agent
from runs.journal import wait_hooks
from runs.models import Wait
from runs.workers import timers
from tests.approvals.setup import WHY
from tests.world import Item, Notes, Toolbox, agent_of

OFFICE = dict.fromkeys(("mon", "tue", "wed", "thu", "fri"), "09:00-17:00")
SOON = timedelta(milliseconds=1)


def calendar(by: Actor, name: str = "DE", zone: str = "Europe/Berlin", **more: Any) -> Any:
    given = {"name": name, "zone": zone, "week": OFFICE, "justification": WHY} | more
    return acts.set_calendar(CalendarBody.model_validate(given), by=by)


def timing(by: Actor, queue: str = "finance_po", **said: Any) -> Timing:
    """What the queue says of time from now on."""
    row = acts.set_timing(queue, TimingBody.model_validate({**said, "justification": WHY}), by=by)
    wait_hooks.queues.forget()
    return row


def at_once(queue: str = "finance_po", *steps: str, **said: Any) -> Timing:
    """The same with steps that nobody has any time for, which an administrator can't set."""
    row = Timing(
        queue=Queue.objects.get(name=queue), version=1, on_timeout="escalate", steps=[[to, 0] for to in steps],
        set_by="user:boss", set_at=timezone.now(), **said,
    )  # fmt: skip
    row.seal()
    row.save()
    wait_hooks.queues.forget()
    return row


def paying(tools: Toolbox, **gate: Any) -> Agent:
    """An agent that pays once finance says yes, and tells what it was told otherwise."""
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


def make_late(approval: Approval) -> None:
    """As if its time had run out, for the sweeper: the rows say so, and the journal still says until when it was."""
    past = database_now() - timedelta(seconds=1)
    Approval.objects.filter(pk=approval.pk).update(deadline=past)
    Wait.objects.filter(pk=approval.wait_id).update(deadline=past)


def sweep() -> None:
    timers._troubled.clear()
    timers.sweep()
