"""A small installation with every kind of event that reports count."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from approvals.models import Approval
from durableagents import Context, End, KeyRejected, TransportError
from durableagents.contrib.reports import catalogue
from durableagents.contrib.reports.tables import Report
from ledger.actors import Actor
from runs.models import Process, Run
from runs.services.late_results import lost_worker, record_late_result
from runs.services.lifecycle import cancel, pause, resume
from runs.workers import failover
from tests.integration.approvals.setup import buying, say, somebody
from tests.integration.runs.conftest import _agents_of_this_test, outside, stage, tools
from tests.integration.runs.stage import Stage, calling, fresh, now
from tests.integration.runs.test_late import comes_back, tells
from tests.world import OLGA, Done, Item, Notes, Outside, Toolbox, agent_of

__all__ = ["_agents_of_this_test", "outside", "stage", "tools"]


@dataclass
class Scenario:
    """The acts of a story, counted as they are done."""

    stage: Stage
    people: dict[str, Actor] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)


def figures(report: Report) -> dict[str, Any]:
    return {each.name: each.value for each in report.figures}


def rows(report: Report, table: str) -> list[dict[str, Any]]:
    (found,) = [each for each in report.tables if each.name == table]
    return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]


def make(name: str, **given: str) -> Report:
    return catalogue.make(catalogue.find(name), **given)


@pytest.fixture
def scenario(stage: Stage, tools: Toolbox, outside: Outside) -> Scenario:
    """Nine runs: plain, approved (5000), rejected (70), waiting at a gate, recovered, overridden, contradicted, with a
    rejected key, and one whose answers to two sends differ."""
    made = Scenario(stage)
    made.people = {"fiona": somebody("fiona", "approver_finance"), "frank": somebody("frank", "approver_finance")}

    async def order(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.order, Item(name="po", amount=7))).ref)

    plain = agent_of(order, name="plain", tools=[tools.order])
    made.runs["plain"] = stage.start(plain)
    assert stage.drive() == "completed"
    for name, amount, who, verdict in (("approved", 5000, "fiona", "approve"), ("rejected", 7000, "frank", "reject")):
        made.runs[name] = stage.start(buying(tools, amount))
        assert stage.drive() == "parked"
        say(Approval.objects.get(state="open"), made.people[who], verdict)
        stage.drive()
    _recovered(made, plain)
    _contradicted(made, tools)
    _key_rejected(made, tools, outside)
    _answered_differently(made, tools)
    made.runs["overridden"] = stage.start(plain)
    pause(made.runs["overridden"].id, justification="wait", by=OLGA)
    resume(made.runs["overridden"].id, justification="go on", by=OLGA)
    cancel(made.runs["overridden"].id, justification="=HYPERLINK(1)", by=OLGA)
    made.runs["waiting"] = stage.start(buying(tools, 9000))
    assert stage.drive() == "parked"
    made.runs = {name: fresh(run) for name, run in made.runs.items()}
    return made


def _recovered(made: Scenario, plain: Any) -> None:
    stage = made.stage
    made.runs["recovered"] = stage.start(plain)
    worker = stage.hire(is_dead=True)
    stage.kill_at = [("CP4", "order")]
    assert stage.drive(worker) == "killed" and failover.worker_died(worker.id, "reaped") == 1
    Run.objects.filter(ready_at__isnull=False).update(ready_at=now())
    assert stage.drive() == "completed"


def _contradicted(made: Scenario, tools: Toolbox) -> None:
    """A person says that it did not happen; then its worker comes back and says that it did."""
    stage = made.stage
    run = made.runs["contradicted"] = stage.start(calling(tools, "mail"))
    worker = comes_back(stage, run, "mail")
    assert stage.drive() == "parked"
    Process.objects.filter(pk=worker.id).update(end_cause="proof")
    stage.reconcile(run, "did_not")
    assert tells(stage, worker) is False
    stage.late.clear()
    assert stage.drive() == "parked"


def _key_rejected(made: Scenario, tools: Toolbox, outside: Outside) -> None:
    stage = made.stage
    outside.trouble("order", TransportError("cut"), when="after")
    outside.trouble("order", KeyRejected("used with another body", details={}))
    run = made.runs["key rejected"] = stage.start(calling(tools, "order", item="b"))
    assert stage.settle(run) == "parked"


def _answered_differently(made: Scenario, tools: Toolbox) -> None:
    """A keyed call is sent again after its worker was taken for dead; the upstream system answers each differently."""
    stage = made.stage
    run = made.runs["answered differently"] = stage.start(calling(tools, "order", item="c"))
    worker = comes_back(stage, run, "order")
    assert stage.drive() == "completed"
    (late,) = stage.late
    assert late.result["ref"] == "order:c"
    late = type(late)(**{**_fields(late), "result": Done(ref="order:second").model_dump()})
    assert record_late_result(late, lost_worker(worker.id)) is False
    stage.late.clear()


def _fields(late: Any) -> dict[str, Any]:
    return {name: getattr(late, name) for name in late.__dataclass_fields__}


def past(**ago: float) -> str:
    return (now() - timedelta(**ago)).isoformat()
