from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from durableagents import Context, End, TransportError
from durableagents.contrib.bulk import services as acts
from durableagents.contrib.bulk import working
from durableagents.contrib.bulk.models import Batch
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput
from runs.engine.budget import Budget
from runs.models import Run
from runs.services import lifecycle
from runs.services.settling.agreeing import newest
from tests.contrib.bulk.test_batches import WHY, ask, finish, operator, sleeper
from tests.contrib.change_control.test_settling import FAMILIES, guarded
from tests.integration.approvals.setup import boss, somebody
from tests.integration.runs.stage import Stage, calling, dump, events, fresh, head, output, overrides, problems, waiting
from tests.tampering import tamper
from tests.world import SHOP, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.usefixtures("stage")
Who = tuple[Actor, frozenset[str]]


@pytest.fixture
def olga(stage: Stage) -> Who:
    return operator()


def codes(batch: Batch) -> dict[UUID, tuple[str, str]]:
    return {item.run_id: (str(item.outcome), item.code) for item in batch.items.all()}


# --- budgets ----------------------------------------------------------------------------------------------------------


def capped(agent: Any, **caps: Any) -> UUID:
    return lifecycle.start(agent.graph_id, {}, by=SHOP, budget=Budget(**caps)).pk


def test_caps_are_raised_to_it_and_never_lowered(tools: Toolbox, olga: Who) -> None:
    agent = sleeper(tools)
    low, high = capped(agent, steps=5, tool_calls=9), capped(agent, steps=50)
    without = capped(agent, tool_calls=3)
    batch = finish(ask(olga, "budget", runs=[str(x) for x in (low, high, without)], budget={"steps": 20}))
    assert codes(batch) == {
        low: ("done", ""),
        high: ("refused", "illegal-state"),
        without: ("refused", "illegal-state"),
    }
    items = [(h.cap_steps, h.cap_tool_calls) for h in (head(Run(id=one)) for one in (low, high, without))]
    assert items == [(20, 9), (50, None), (None, 3)]
    (record,) = overrides(fresh(Run(id=low)))
    assert (record.action, record.justification, record.after["batch"]) == ("budget", WHY, str(batch.pk))
    assert all(problems(Run(id=one)) == [] for one in (low, high, without))


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({}, "budget"),
        ({"budget": {}}, "budget"),
        ({"budget": {"usd": None}}, "budget.usd"),
        ({"action": "pause", "budget": {"steps": 1}}, "budget"),
        ({"budget": {"steps": 1}, "verdict": "fail"}, "verdict"),
        ({"action": "reconcile"}, "verdict"),
        ({"action": "reconcile", "verdict": "fail", "receipt": 1}, "receipt"),
        ({"action": "pause", "sender_is_gone": True}, "sender_is_gone"),
    ],
)
def test_what_can_not_be_meant_is_named(tools: Toolbox, olga: Who, more: dict[str, Any], field: str) -> None:
    run = capped(sleeper(tools), steps=1)
    fields = {"action": "budget", "runs": [str(run)]} | more
    before = dump()
    with pytest.raises(InvalidInput) as refused:
        ask(olga, **fields)
    assert refused.value.extra["errors"][0]["field"] == field and dump() == before


def test_who_may_raise_and_settle_for_many(tools: Toolbox, stage: Stage) -> None:
    run = capped(sleeper(tools), steps=1)
    with pytest.raises(Forbidden):
        ask(operator("ivan", "integrator"), "budget", runs=[str(run)], budget={"steps": 9})
    with pytest.raises(Forbidden):
        ask(operator("fiona", "approver_finance"), "reconcile", runs=[str(run)], verdict="fail")
    # The installation decides per run which approvers raise budgets.
    batch = finish(ask(operator("leo", "approver_legal"), "budget", runs=[str(run)], budget={"steps": 9}))
    assert codes(batch) == {run: ("refused", "forbidden")}


# --- unknown outcomes -------------------------------------------------------------------------------------------------


def lost(stage: Stage, tools: Toolbox, outside: Outside, number: int) -> list[UUID]:
    agent = calling(tools, "mail", "letter")
    found = []
    for _ in range(number):
        outside.trouble("mail", TransportError("cut"), when="after")
        found.append(stage.start(agent).pk)
        assert stage.drive() == "parked"
    return found


def test_many_unknown_outcomes_are_settled_alike(stage: Stage, tools: Toolbox, outside: Outside, olga: Who) -> None:
    runs = [*lost(stage, tools, outside, 3), capped(sleeper(tools), steps=9)]
    fields = {"verdict": "happened", "receipt": {"ref": "the post says so"}}
    batch = finish(ask(olga, "reconcile", runs=[str(one) for one in runs], **fields))
    assert [codes(batch)[one] for one in runs] == [("done", "")] * 3 + [("refused", "illegal-state")]
    while stage.drive() != "idle":
        pass
    assert [output(Run(id=one)) for one in runs[:3]] == ["the post says so"] * 3 and len(outside.requests) == 3
    assert [record.after["batch"] for one in runs[:3] for record in overrides(fresh(Run(id=one)))] == [
        str(batch.pk)
    ] * 3
    assert all(problems(Run(id=one)) == [] for one in runs)


def test_a_verdict_is_on_the_call_that_was_looked_at(stage: Stage, tools: Toolbox, outside: Outside, olga: Who) -> None:

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.mail, Item(name="first"))
        return End((await ctx.call(tools.mail, Item(name="second"))).ref)

    outside.trouble("mail", TransportError("cut"), when="after")
    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "parked"
    none = capped(sleeper(tools), steps=9)
    draft = ask(olga, "reconcile", runs=[str(run.pk), str(none)], verdict="did_not", start=False)
    assert draft.forecast["may"] == 1
    stage.reconcile(run, "happened", {"ref": "it is there"})
    outside.trouble("mail", TransportError("cut"), when="after")
    assert stage.settle(run) == "parked" and [w.kind for w in waiting(run)] == ["reconcile"]
    acts.start(draft.pk, by=olga[0], held=olga[1], justification="As looked at.")
    finish(draft)
    assert set(codes(draft).values()) == {("refused", "illegal-state")}
    assert [w.kind for w in waiting(run)] == ["reconcile"] and len(outside.requests) == 2
    again = finish(ask(olga, "reconcile", runs=[str(run.pk)], verdict="did_not"))
    assert codes(again) == {run.pk: ("done", "")} and stage.settle(run) == "completed" and len(outside.requests) == 3
    tamper("UPDATE runs_batchitem SET outcome = '', wait_id = %s WHERE batch_id = %s", uuid4(), again.pk)
    tamper("UPDATE runs_batch SET ended_at = NULL WHERE id = %s", again.pk)
    assert not working._is_authentic(Batch.objects.get(pk=again.pk))


def test_where_two_settle_it_two_acts_on_many_do(stage: Stage, tools: Toolbox, outside: Outside, olga: Who) -> None:
    boss()
    somebody("second", is_superuser=True, is_staff=True)
    ben = operator("ben")
    guarded(*FAMILIES)
    runs = lost(stage, tools, outside, 3)
    ids = [str(one) for one in runs]
    first = finish(ask(olga, "reconcile", runs=ids, verdict="did_not"))
    assert set(codes(first).values()) == {("done", "proposed")} and stage.drive() == "idle"
    assert all("second operator" in item.why for item in first.items.all())
    assert len(newest(w for one in runs for w in Run(id=one).waits.all())) == 3
    again = finish(ask(olga, "reconcile", runs=ids, verdict="did_not"))
    assert set(codes(again).values()) == {("refused", "already-said")}
    second = finish(ask(ben, "reconcile", runs=ids, verdict="did_not"))
    assert set(codes(second).values()) == {("done", "")}
    while stage.drive() != "idle":
        pass
    assert len(outside.requests) == 6 and all(problems(Run(id=one)) == [] for one in runs)
    assert [x.by for one in runs for x in events(Run(id=one), e.ToolReconciled)] == ["user:ben"] * 3
    batch = Batch.objects.get(pk=first.pk)
    assert batch.said == {"verdict": "did_not"} and batch.is_authentic
