"""Helpers for the tests of standing approvals."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pgtrigger
import pytest

from approvals.bodies import AgainBody
from approvals.models import Approval, Decision
from durableagents import Context, End
from durableagents.contrib.standing_approvals import answering
from durableagents.contrib.standing_approvals.models import StandingGrant
from durableagents.contrib.standing_approvals.services import BoundsBody, approve_again, set_limits
from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.models import Event
from runs.engine.agents import Agent
from runs.models import Run
from runs.workers import timers
from tests.integration.approvals.setup import WHY
from tests.integration.runs.aging import written_as
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Toolbox, agent_of


def allowed(admin: Actor, times: int = 5, days: int = 30, sum: str | None = None, queue: str = "finance_po") -> None:
    most = None if sum is None else Decimal(sum)
    set_limits(queue, BoundsBody(times=times, days=days, sum=most, justification=WHY), by=admin)


def paying(tools: Toolbox, version: str = "1.0.0", name: str = "payer", **gate: Any) -> Agent:
    assert tools.pay.gate is not None
    fields: dict[str, Any] = {"amount": "amount USD", "same": ["name"]} | gate
    pay = replace(tools.pay, gate=replace(tools.pay.gate, **fields))

    async def node(state: Notes, ctx: Context) -> End:
        what, _, amount = state.asked.text.partition(" ")
        return End((await ctx.call(pay, Item(name=what, amount=int(amount)))).ref)

    return agent_of(node, tools=[pay], name=name, version=version)


def asks(stage: Stage, agent: Agent, text: str = "pen 5000") -> Approval:
    run = stage.start(agent, text=text)
    while not Approval.objects.filter(run=run).exists():
        assert stage.drive() in ("parked", "completed")
    return Approval.objects.get(run=run, state="open")


def paid(tools: Toolbox) -> int:
    return len(tools.outside.executed("pay"))


def body(times: int = 2, sum: str | None = "20000", days: float = 3, **more: Any) -> AgainBody:
    fields = {
        "times": times,
        "sum": None if sum is None else Decimal(sum),
        "until": database_now() + timedelta(days=days),
    }
    return AgainBody.model_validate(fields | more)


def given(approval: Approval, by: Actor, **more: Any) -> StandingGrant:
    approve_again(
        approval.id, plan_hash=approval.plan_hash, justification="the same every month", by=by, again=body(**more)
    )
    return StandingGrant.objects.get(approval=approval)


def runs_out(grant: StandingGrant) -> None:
    """Let the grant expire at the last question: its row, its decision and its event say so."""
    until, decision = Approval.objects.latest("opened_at").opened_at, Decision.objects.get(approval=grant.approval_id)
    decision.standing["again"]["until"], grant.until = until.isoformat(), until
    decision.seal()
    grant.seal()
    with pgtrigger.ignore("standing_approvals.StandingGrant:append_only", "approvals.Decision:append_only"):
        StandingGrant.objects.filter(pk=grant.pk).update(until=until, code=grant.code)
        Decision.objects.filter(pk=decision.pk).update(standing=decision.standing, code=decision.code)
    line = Event.objects.get(run_id=grant.run_id, kind=e.ApprovalDecided.KIND)
    event = e.decode(bytes(line.clear), unpack(line.sealed))
    written_as(line, replace(event, payload=event.payload | {"standing": decision.standing}))


def swept() -> None:
    answering._left.clear()
    timers._troubled.clear()
    timers.sweep()
    answering.answer_questions([], float("inf"))  # including what was left for another pass


def refused(case: Approval, grant: StandingGrant) -> Exception:
    """Return the reason why the grant does not answer a question it matched a moment ago."""
    with pytest.raises(answering.LeftToPeople) as left:
        answering._answer(case.pk, case.run_id, grant.pk)
    return left.value


def state(run: Run) -> str:
    return str(Approval.objects.filter(run=run).latest("opened_at").state)
