"""Approvals whose deadline passes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pgtrigger

from approvals.deadlines import deadlines
from approvals.models import Approval
from durableagents import Context, End, Expired, Rejected
from ledger import events as e
from ledger.clock import database_now
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.workers import timers
from tests.integration.runs.aging import earlier
from tests.integration.runs.stage import events
from tests.world import Item, Notes, Toolbox, agent_of

SOON = timedelta(milliseconds=1)


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
    by = deadlines().course(Approval.objects.get(pk=approval.pk), wait).deadline - past
    earlier(approval.run_id, by, str(approval.pk))
    now = Approval.objects.get(pk=approval.pk)
    look_at = now.look_at and now.look_at - by
    with pgtrigger.ignore("approvals.Approval:terms_are_frozen"):
        Approval.objects.filter(pk=approval.pk).update(deadline=past, look_at=look_at, timing=_terms(now))
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
