from __future__ import annotations

import pytest

from durableagents import Agent, Budget, Context, End, Failure, Renew, TransportError
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from ledger.models import LedgerEntry
from runs.models import Run
from runs.services import lifecycle
from runs.services.undo import preview
from tests.integration.runs.families_undone import answer, everything, family, sound
from tests.integration.runs.stage import Stage, events, facts, fresh, head, kinds, overrides, waiting
from tests.unit.engine.undoings import Reversible, failing, names
from tests.world import OLGA, Notes, Outside, agent_of


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


@pytest.fixture
def waits(tools: Reversible) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.order, {"name": "b"})
        await ctx.signal("go")
        return End()

    return agent_of(node, tools=tools.all())


def test_a_run_that_fails_undoes_what_it_did(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(failing(tools, [["book"], ["post", "order"]]))
    assert stage.settle(run) == "failed"
    assert names(outside) == ["book", "post", "order", "unpost", "unbook"]
    row = fresh(run)
    assert (row.state, row.error_code, row.node) == ("failed", "no_luck", "_undo")
    entries = LedgerEntry.objects.filter(run_id=run.id, fact="compensated").order_by("id")
    assert [(x.slot, x.tool) for x in entries] == [("0.2/1", "post"), ("0.1/1", "book")]
    assert facts(run).count("pending") == 5
    sound(run)


def test_run_stays_compensating_after_wake_and_resume(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(failing(tools, [["book", "buy"]]))
    assert stage.settle(run) == "parked" and fresh(run).state == "waiting_human"
    sound(run)
    lifecycle.pause(run.id, by=OLGA, justification="a moment")
    stage.decide(run)
    assert fresh(run).state == "paused"
    assert lifecycle.resume(run.id, by=OLGA, justification="on with it").state == "compensating"
    assert fresh(run).state == "compensating"
    sound(run)
    (claimed,) = stage.claim()
    assert fresh(run).state == "compensating"
    sound(run)
    assert stage.drive_claimed(claimed) == "failed" and names(outside) == ["book", "buy", "refund", "unbook"]
    sound(run)


def test_first_undo_commit_makes_it_compensating(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(failing(tools, [["book"]]))
    stage.kill_at = [("CP1", "unbook")]
    assert stage.drive() == "killed" and fresh(run).state == "compensating"
    assert names(outside) == ["book"]


def test_cancel_asks_only_if_something_can_be_undone(stage: Stage, waits: Agent, outside: Outside) -> None:
    run = stage.start(waits)
    stage.settle(run)
    with pytest.raises(InvalidInput, match="choose `undo` or `leave`") as refused:
        lifecycle.cancel(run.id, by=OLGA, justification="no more")
    (named,) = refused.value.extra["errors"]
    assert named["field"] == "effects" and named["problem"] == "book (book:a): undone by unbook"
    with pytest.raises(InvalidInput, match="one of undo, leave"):
        lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="both")
    assert kinds(run)[-1] == "RunParked", "nothing was changed"
    sound(run)
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="leave")
    assert fresh(run).state == "cancelled" and names(outside) == ["book", "order"]
    assert events(run, e.RunCancelled)[0].payload["effects"] == "leave"
    sound(run)


def test_a_cancel_undoes_and_the_run_ends_as_cancelled(stage: Stage, waits: Agent, outside: Outside) -> None:
    run = stage.start(waits)
    stage.settle(run)
    visible = preview(run.id, run.graph_id)
    assert [(x.what, x.tool, x.by, x.arguments) for x in visible.effects] == [
        ("stays", "order", "", None),
        ("undo", "book", "unbook", {"name": "book:a", "amount": 1}),
    ]
    row = lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    assert row.state == "running" and kinds(run)[-1] == "CancelRequested"
    assert stage.settle(run) == "cancelled" and names(outside) == ["book", "order", "unbook"]
    (ended,) = events(run, e.RunCancelled)
    assert [x["tool"] for x in ended.payload["undo"]["undone"]] == ["book"]
    assert ended.payload["asked_by"] == OLGA.ref and not head(run).is_cancel_requested
    assert [x.action for x in overrides(run)] == ["cancel"]
    sound(run)


def test_cancelled_run_verifies_while_it_undoes(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.buy, {"name": "a", "amount": 1000})
        await ctx.signal("go")
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    assert stage.settle(run) == "parked" and kinds(run).count("UndoBegun") == 1 and not head(run).is_cancel_requested
    sound(run)
    stage.decide(run)
    assert stage.settle(run) == "cancelled" and names(outside) == ["buy", "refund"]
    sound(run)


def test_a_paused_run_is_cancelled_and_undone(stage: Stage, waits: Agent, outside: Outside) -> None:
    run = stage.start(waits)
    stage.settle(run)
    lifecycle.pause(run.id, by=OLGA, justification="a moment")
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    sound(run)
    assert stage.settle(run) == "cancelled" and names(outside) == ["book", "order", "unbook"]
    sound(run)


def test_nobody_is_asked_about_a_run_that_has_nothing_to_undo(stage: Stage, tools: Reversible) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.order, {"name": "b"})
        await ctx.signal("go")

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    assert fresh(run).state == "cancelled"
    sound(run)


def test_a_cancel_is_refused_while_it_undoes_and_a_retry_after(stage: Stage, tools: Reversible) -> None:
    run = stage.start(failing(tools, [["buy"]]))
    stage.settle(run)
    for effects in (None, "undo", "leave"):
        with pytest.raises(IllegalTransition, match="is undoing its effects"):
            lifecycle.cancel(run.id, by=OLGA, justification="no more", effects=effects)
    stage.decide(run)
    assert stage.settle(run) == "failed"
    with pytest.raises(IllegalTransition, match="effects were undone"):
        lifecycle.retry(run.id, by=OLGA, justification="again")
    sound(run)


def test_nobody_fails_a_run_that_undoes_by_a_verdict(stage: Stage, tools: Reversible, outside: Outside) -> None:
    outside.trouble("unpost", TransportError("cut"))
    run = stage.start(failing(tools, [["book", "post"]]))
    assert stage.settle(run) == "parked"
    with pytest.raises(IllegalTransition, match="State whether this call happened"):
        stage.reconcile(run, "fail")
    stage.reconcile(run, "did_not")
    assert stage.settle(run) == "failed" and names(outside) == ["book", "post", "unpost", "unbook"]
    sound(run)


def test_a_run_that_fails_by_a_verdict_undoes_the_rest(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.mail, {"name": "b"})

    outside.trouble("mail", TransportError("cut"))
    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.settle(run) == "parked"
    stage.reconcile(run, "fail")
    assert fresh(run).state == "running" and kinds(run)[-1] == "UndoAsked"
    sound(run)
    assert stage.settle(run) == "failed" and names(outside) == ["book", "unbook"]
    assert fresh(run).error_code == "unknown_outcome"
    sound(run)


def test_no_cap_and_no_time_keeps_it_from_undoing(stage: Stage, tools: Reversible, outside: Outside) -> None:
    agent = failing(tools, [["book", "buy"]], budget=Budget(tool_calls=2))
    run = stage.start(agent)
    assert stage.settle(run) == "parked"
    assert fresh(run).time_up_at is None and head(run).cap_tool_calls is None
    stage.decide(run)
    assert stage.settle(run) == "failed" and head(run).tool_calls == 4
    sound(run)


def test_waiting_undo_can_be_cancelled_leaving_effects(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(failing(tools, [["book", "rent"]]))
    assert stage.settle(run) == "parked"
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    stage.settle(run)
    (wait,) = waiting(run)
    assert wait.kind == "webhook", "what the callback brings could be undone, so it is awaited"
    assert lifecycle.cancel(run.id, by=OLGA, justification="not worth it", effects="leave").state == "cancelled"
    assert names(outside) == ["book", "rent"]
    sound(run)


# --- families ----------------------------------------------------------------------------------------------------


def test_failed_child_and_parent_undo_their_own(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "fail"))
    everything(stage)
    assert fresh(run).state == "failed" and names(outside) == ["post", "book", "unbook", "unpost"]
    for each in Run.objects.all():
        sound(each)


def test_cancelled_child_undoes_before_its_parent(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "wait"))
    everything(stage)
    assert [x.what for x in preview(run.id, run.graph_id).effects] == ["child", "undo"]
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="undo")
    everything(stage)
    child = Run.objects.get(parent=run.pk)
    assert (fresh(run).state, child.state) == ("cancelled", "cancelled")
    assert names(outside) == ["post", "book", "unbook", "unpost"]
    for each in Run.objects.all():
        sound(each)


def test_who_leaves_the_parents_effects_leaves_the_childs(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "wait"))
    everything(stage)
    lifecycle.cancel(run.id, by=OLGA, justification="no more", effects="leave")
    everything(stage)
    assert Run.objects.get(parent=run.pk).state == "cancelled" and names(outside) == ["post", "book"]


def test_effects_before_a_renewal_are_put_to_a_person(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> Renew:
        await ctx.call(tools.book, {"name": str(len(state.seen))})
        if state.seen:
            raise Failure("no more", code="no_more")
        return Renew(Notes(asked=state.asked, seen=[1]))

    run = stage.start(agent_of(node, tools=tools.all()))
    everything(stage)
    successor = Run.objects.get(came_from=run.pk)
    assert fresh(run).state == "completed" and names(outside) == ["book", "book", "unbook"]
    (question,) = waiting(successor)
    assert str(run.pk) in question.detail["title"]
    answer(successor, "leave")
    everything(stage)
    assert fresh(successor).state == "failed"
    sound(successor)
