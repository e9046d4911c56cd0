"""An escalated run that people were asked about, for tests/integration/runs/test_verification.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from approvals.models import Approval, Escalation, Queue
from durableagents import Context, End
from durableagents.contrib.calendars.models import Timing
from durableagents.contrib.casework import delegations, inquiries
from runs.journal.asked.queues import QUEUES
from runs.models import Run
from runs.workers import timers
from tests.integration.approvals.setup import somebody
from tests.integration.runs.stage import Stage, now
from tests.world import Item, Notes, Toolbox, agent_of


def escalated(stage: Stage, tools: Toolbox) -> Run:
    timing = Timing(
        queue=Queue.objects.get(name="finance_po"),
        version=1,
        on_timeout="escalate",
        steps=[["legal", 60]],
        remind=[50],
        set_by="user:boss",
        set_at=now(),
    )
    timing.seal()
    timing.save()
    QUEUES.forget()
    assert tools.pay.gate is not None
    soon = replace(tools.pay, gate=replace(tools.pay.gate, within=timedelta(milliseconds=1)))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(soon, Item(name="po", amount=5000))).ref)

    run = stage.start(agent_of(node, tools=[soon]))
    assert stage.drive() == "parked"
    timers.sweep()
    assert [row.queue for row in Escalation.objects.filter(run_id=run.id)] == ["legal"]
    talked_about(run)
    return run


def talked_about(run: Run) -> None:
    """Ask two people about its question (one answers); delegate it to both and revoke one."""
    fay, ira, ina = somebody("fay", "approver_finance"), somebody("ira", "operator"), somebody("ina", "operator")
    case, why = Approval.objects.get(run=run), "as agreed with the board"
    for one in (ira, ina):
        inquiries.ask(case.id, to=one.name, question="Do you know them?", by=fay)
        delegations.delegate(case.id, to=one.name, justification=why, by=fay)
    inquiries.answer(case.id, 0, answer="For ten years.", by=ira)
    delegations.take_back(case.id, 1, justification=why, by=fay)


make_run = escalated
