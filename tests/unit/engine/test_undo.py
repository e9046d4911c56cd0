from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durableagents import BusinessFailure, Context, Gate, ReplayClass, TransportError, Undo, tool
from ledger import events as e
from runs.engine.budget import Caps
from runs.engine.errors import DefinitionError, MisusedContext
from runs.engine.tools import DidNotHappen, Happened, ToolCall
from runs.engine.undo import UNDO_NODE
from tests.unit.engine.story import Story
from tests.unit.engine.undoings import Reversible, back, cancel, failing, names
from tests.world import Done, Item, Notes, Outside, Toolbox, agent_of


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


async def test_a_run_that_fails_undoes_what_it_did_the_last_first(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["book", "order"], ["post", "book"]]))
    assert await story.settle() == "failed"
    assert names(outside) == ["book", "order", "post", "book", "unbook", "unpost", "unbook"]
    undone = story.events(e.EffectUndone)
    assert [(x.tool, x.of_slot) for x in undone] == [("book", "0.2/2"), ("post", "0.2/1"), ("book", "0.1/1")]
    assert story.failure.code == "no_luck" and story.failure.payload["message"] == "the end of it"
    undo = story.failure.payload["undo"]
    assert [x["tool"] for x in undo["undone"]] == ["book", "post", "book"] and undo["left"] == []
    assert [(x["tool"], x["why"]) for x in undo["stays"]] == [("order", "no undo is declared for it")]
    assert story.facts("0.1/1") == ["pending", "committed", "compensated"]
    assert story.run.snapshots[-1][1].node == UNDO_NODE


async def test_a_run_without_undos_fails_as_ever(outside: Outside) -> None:
    plain = Toolbox(outside)
    story = Story(failing(plain, [["order", "mail"]]))  # type: ignore[arg-type]
    assert await story.settle() == "failed"
    assert names(outside) == ["order", "mail"]
    assert not {"UndoRegistered", "UndoBegun"} & set(story.kinds()) and "undo" not in story.failure.payload


async def test_effects_are_left_where_the_agent_says_so(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["book"]], on_failure="leave"))
    assert await story.settle() == "failed"
    assert names(outside) == ["book"] and "UndoBegun" not in story.kinds()


async def test_a_call_says_itself_how_it_is_undone_or_that_it_stands(outside: Outside, tools: Reversible) -> None:
    own = Undo(tools.unbook, lambda asked, got: {"name": f"own {got.ref}"}, name="own")

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.order, {"name": "a"}, undo=own)
        await ctx.call(tools.book, {"name": "b"}, undo=None)
        await ctx.call(tools.book, {"name": "c"}, undo=own)
        raise RuntimeError("no")

    story = Story(agent_of(node, tools=tools.all(), undos=[own]))
    assert await story.settle() == "failed"
    assert [r.body for r in outside.seen("unbook")] == [
        '{"amount": 1, "name": "own book:c"}',
        '{"amount": 1, "name": "own order:a"}',
    ]
    assert [(x.slot, x.undo, x.tool) for x in story.events(e.UndoRegistered)] == [
        ("0.1/1", ":own", "unbook"),
        ("0.1/3", ":own", "unbook"),
    ]


async def test_undeclared_undo_is_refused(outside: Outside, tools: Reversible) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.order, {"name": "a"}, undo=Undo(tools.unbook, back))

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.settle() == "failed"
    assert "does not declare the undo of 'order' by 'unbook'" in story.failure.payload["message"]
    assert outside.requests == [] and MisusedContext.__name__ in story.failure.payload["message"]


async def test_what_was_refused_or_did_not_happen_is_not_undone(outside: Outside, tools: Reversible) -> None:
    outside.trouble("book", BusinessFailure("never", code="refused"))

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.post, {"name": "a"})
        await ctx.call(tools.book, {"name": "b"})

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.settle() == "failed"
    assert names(outside) == ["post", "unpost"] and story.failure.code == "refused"


async def test_nothing_happened_so_nothing_is_undone(outside: Outside, tools: Reversible) -> None:
    outside.trouble("book", BusinessFailure("never", code="refused"))
    story = Story(failing(tools, [["book"]]))
    assert await story.settle() == "failed"
    assert "UndoBegun" not in story.kinds()


@pytest.mark.parametrize("effects", ["undo", "leave"])
async def test_cancel_says_what_becomes_of_effects(outside: Outside, tools: Reversible, effects: str) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.signal("never")

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.drive() == "parked"
    cancel(story, effects)
    assert await story.settle() == "cancelled"
    assert names(outside) == (["book", "unbook"] if effects == "undo" else ["book"])
    ended = story.events(e.RunCancelled)[-1]
    assert ended.payload["justification"] == "no more" and ended.payload["asked_by"] == "user:olga"
    assert not story.run.open_waits()


async def test_call_of_unknown_outcome_is_settled_before_the_undo(outside: Outside, tools: Reversible) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.post, {"name": "b"})

    story = Story(agent_of(node, tools=tools.all()))
    outside.trouble("post", TransportError("cut"), when="after")
    assert await story.settle() == "parked" and story.one_waiting("reconcile")
    cancel(story, "undo")
    assert await story.settle() == "parked" and names(outside) == ["book", "post"]
    story.reconcile("happened", receipt={"ref": "post:b"})
    assert await story.settle() == "cancelled"
    assert names(outside) == ["book", "post", "unpost", "unbook"]


@pytest.mark.parametrize(("verdict", "undone"), [("did_not", ["unbook"]), ("fail", ["unbook"])])
async def test_verdict_decides_the_undo(outside: Outside, tools: Reversible, verdict: str, undone: list[str]) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.post, {"name": "b"})

    story = Story(agent_of(node, tools=tools.all()))
    outside.trouble("post", TransportError("cut"))
    assert await story.settle() == "parked"
    cancel(story, "undo")
    assert await story.settle() == "parked"
    story.reconcile(verdict)
    assert await story.settle() == "cancelled"
    assert names(outside)[1:] == undone
    stays = story.events(e.RunCancelled)[-1].payload["undo"]["stays"]
    assert [x["why"] for x in stays] == (["user:olga left open whether it happened"] if verdict == "fail" else [])


async def test_a_callback_that_is_due_is_awaited_first(outside: Outside, tools: Reversible) -> None:
    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.rent, {"name": "a"})

    story = Story(agent_of(node, tools=tools.all()))
    assert await story.settle() == "parked"
    cancel(story, "undo")
    assert await story.settle() == "parked" and story.run.state == "waiting_tool"
    assert "UndoBegun" not in story.kinds()
    story.call_back({"ref": "rented"})
    assert await story.settle() == "parked" and story.run.state == "waiting_tool"
    story.call_back({"ref": "given back"})
    assert await story.settle() == "cancelled"
    assert names(outside) == ["rent", "unrent"] and '"rented"' in outside.seen("unrent")[0].body


async def test_an_answer_that_never_came_is_put_to_a_person(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["book", "rent"]]))
    assert await story.settle() == "parked"
    story.run.resolve(story.one_waiting("webhook")[0], "timed_out")
    assert await story.settle() == "parked"
    _, question = story.one_waiting("input")
    assert "rent (0.1/2) is not undone: the other side took the call" in question.spec.detail["title"]
    story.run.answer({"decision": "leave", "justification": "asked them: nothing"})
    assert await story.settle() == "failed" and story.failure.code == "no_answer"
    (left,) = story.events(e.EffectLeft)
    assert (left.tool, left.by, left.payload["justification"]) == ("rent", "user:olga", "asked them: nothing")
    assert names(outside) == ["book", "rent", "unbook"]


async def test_rejected_gated_undo_stops_for_an_operator(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["buy"]]))
    assert await story.settle() == "parked" and story.run.state == "waiting_human"
    story.decide("rejected")
    assert await story.settle() == "parked" and names(outside) == ["buy"]
    assert "refund" in story.one_waiting("input")[1].spec.detail["title"]
    story.run.answer({"decision": "retry", "justification": "finance has been told"})
    assert await story.settle() == "parked"
    story.decide("approved")
    assert await story.settle() == "failed" and names(outside) == ["buy", "refund"]
    assert len(story.events(e.EffectUndone)) == 1 and story.events(e.EffectLeft) == []


async def test_a_refused_undo_is_retried_or_left_and_the_rest_goes_on(outside: Outside, tools: Reversible) -> None:
    outside.trouble("unpost", BusinessFailure("too late", code="late"), BusinessFailure("too late", code="late"))
    story = Story(failing(tools, [["book", "post"]]))
    assert await story.settle() == "parked" and names(outside) == ["book", "post"]
    story.run.answer({"decision": "retry", "justification": "again"})
    assert await story.settle() == "parked"
    story.run.answer({"decision": "leave", "justification": "they keep it"})
    assert await story.settle() == "failed"
    assert names(outside) == ["book", "post", "unbook"]
    assert len({x.slot for x in story.events(e.ToolInvoked) if x.tool == "unpost"}) == 2, "another call, a further key"
    undo = story.failure.payload["undo"]
    assert [x["tool"] for x in undo["undone"]] == ["book"] and [x["tool"] for x in undo["left"]] == ["post"]
    assert "too late" in undo["left"][0]["why"]


async def test_nobodys_silence_is_an_answer(outside: Outside, tools: Reversible) -> None:
    outside.trouble("unbook", BusinessFailure("no", code="no"))
    story = Story(failing(tools, [["book"]]))
    assert await story.settle() == "parked"
    story.run.resolve(story.one_waiting("input")[0], "timed_out")
    assert await story.settle() == "parked" and story.one_waiting("input")
    story.run.answer({"decision": "retry", "justification": "x"})
    assert await story.settle() == "failed" and names(outside) == ["book", "unbook"]


async def test_what_would_undo_it_can_not_be_made_of_the_record(outside: Outside, tools: Reversible) -> None:
    broken = Undo(tools.unbook, lambda asked, got: {"name": got.nowhere}, name="broken")

    async def node(state: Notes, ctx: Context) -> None:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.call(tools.order, {"name": "b"}, undo=broken)
        raise RuntimeError("no")

    story = Story(agent_of(node, tools=tools.all(), undos=[broken]))
    assert await story.settle() == "parked" and names(outside) == ["book", "order"]
    assert "nowhere" in story.one_waiting("input")[1].spec.detail["title"]
    story.run.answer({"decision": "leave", "justification": "by hand"})
    assert await story.settle() == "failed" and names(outside) == ["book", "order", "unbook"]


async def test_no_cap_keeps_an_undo_from_running_and_it_counts(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["book", "book"]]), caps=Caps(tool_calls=2))
    assert await story.settle() == "failed"
    assert names(outside) == ["book", "book", "unbook", "unbook"] and story.run.used.tool_calls == 4


async def test_a_second_cancel_does_not_interrupt_it(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["book", "buy"]]))
    assert await story.settle() == "parked"
    cancel(story, "leave")  # someone writes it past the services
    story.run.is_cancel_requested = False
    story.decide("approved")
    assert await story.settle() == "failed" and names(outside) == ["book", "buy", "refund", "unbook"]


async def test_a_pause_holds_it_and_a_drain_hands_it_on(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["book", "buy"]]))
    assert await story.settle() == "parked"
    story.decide("approved")
    story.run.is_pause_requested = True
    assert await story.drive() == "paused" and names(outside) == ["book", "buy"]
    assert await story.settle() == "failed" and names(outside) == ["book", "buy", "refund", "unbook"]


async def test_news_that_come_after_the_plan_are_told_to_a_person(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["buy", "book"]]))
    story.run.append([e.UndoRegistered(slot="0.1/7", undo="book:unbook", tool="unbook")])
    assert await story.settle() == "parked"  # for the gate of the undo
    story.run.append([e.CallbackArrivedLate(slot="0.1/7", tool="rent", payload={})])
    story.decide("approved")
    assert await story.settle() == "parked" and story.run.state == "waiting_human"
    assert story.one_waiting("input")[1].spec.detail["title"].startswith("rent (0.1/7) is not undone: an answer")
    story.run.answer({"decision": "leave", "justification": "called them"})
    assert await story.settle() == "failed" and len(story.events(e.EffectLeft)) == 1


async def test_messages_do_not_keep_it_from_waiting(outside: Outside, tools: Reversible) -> None:
    agent = failing(tools, [["buy"]])

    @agent.message(takes=Item)
    def tell(state: Notes, request: Item) -> None: ...

    story = Story(agent)
    assert await story.settle() == "parked"
    story.run.message("tell", {"name": "a"})
    assert await story.drive() == "parked" and not story.events(e.MessageHandled)
    story.decide("approved")
    assert await story.settle() == "failed" and story.run.inbox == []


async def test_lost_checkpoint_leaves_the_plan_in_its_event(outside: Outside, tools: Reversible) -> None:
    story = Story(failing(tools, [["book", "buy"]]))
    assert await story.settle() == "parked"
    assert story.run.snapshots.pop()[1].node == UNDO_NODE
    story.decide("approved")
    assert await story.settle() == "failed" and names(outside) == ["book", "buy", "refund", "unbook"]


# --- refused by name ---------------------------------------------------------------------------------------------


def _tool(name: str, replay_class: ReplayClass, **more: Any) -> Any:
    async def function(args: Item, call: ToolCall) -> Done:
        return Done(ref=name)

    function.__name__ = name
    return tool(replay_class=replay_class, **more)(function)


KEYED, UNSAFE, PURE = ReplayClass.IDEMPOTENT_WITH_KEY, ReplayClass.UNSAFE_ON_REPLAY, ReplayClass.PURE


async def test_undo_gets_the_result_that_a_hook_reported(tools: Reversible, outside: Outside) -> None:
    tools.book = replace(tools.book, reconcile=tools._ask_hook)
    outside.hook = lambda args, call: Happened(Done(ref="told by the hook"))
    outside.trouble("book", *[TransportError("no answer")] * 99, when="after")
    story = Story(failing(tools, [["book"]]))
    story.kill_at = [("CP3", "book"), ("CP4", "book")]
    await story.settle()
    (reconciled,) = story.events(e.ToolReconciled)
    assert reconciled.payload["result"]["ref"] == "told by the hook"
    (undone,) = [r for r in outside.requests if r.tool == "unbook"]
    assert Item.model_validate_json(undone.body).name == "told by the hook"


async def _hook(args: Item, call: ToolCall) -> Happened | DidNotHappen | None:
    return None


def test_what_can_not_be_undone_as_declared_is_refused_by_name() -> None:
    unsafe, read, keyed = _tool("unsafe", UNSAFE), _tool("read", PURE), _tool("keyed", KEYED)
    twice = _tool("twice", KEYED, undo=Undo(keyed, back))

    async def node(state: Notes, ctx: Context) -> None: ...

    def agent(*tools: Any, **more: Any) -> Any:
        return agent_of(node, tools=tools, **more)

    for by, found in (
        (unsafe, "unsafe on replay, so an interrupted undo"),
        (read, "pure, so it can't undo anything"),
        (twice, "has an undo of its own"),
    ):
        with pytest.raises(DefinitionError, match=found):
            agent(_tool("done", KEYED, undo=Undo(by, back)), by, keyed)
        with pytest.raises(DefinitionError, match=found):
            agent(by, keyed, undos=[Undo(by, back)])
    with pytest.raises(DefinitionError, match="does not declare the tool 'keyed'"):
        agent(_tool("done", KEYED, undo=Undo(keyed, back)))
    with pytest.raises(DefinitionError, match="two undos named 'keyed'"):
        agent(keyed, undos=[Undo(keyed, back), Undo(keyed, back)])
    with pytest.raises(DefinitionError, match="on_failure='never'"):
        agent(on_failure="never")
    with pytest.raises(DefinitionError, match="nothing to undo"):
        _tool("look", PURE, undo=Undo(keyed, back))
    with pytest.raises(DefinitionError, match="give an Undo"):
        _tool("look", KEYED, undo=keyed)
    for wrong in ({"tool": "keyed", "args": back}, {"tool": keyed, "args": None}, {"tool": keyed, "args": _hook}):
        with pytest.raises(DefinitionError):
            Undo(**wrong)  # type: ignore[arg-type]
    gate = Gate("finance_po", "always")
    agent(_tool("done", KEYED, undo=Undo(u := _tool("u", UNSAFE, gate=gate), back)), u)
    agent(_tool("done", KEYED, undo=Undo(u := _tool("u", UNSAFE, reconcile=_hook), back)), u)


def test_the_fingerprint_covers_an_undo_and_only_where_there_is_one() -> None:
    keyed = _tool("keyed", KEYED)

    async def node(state: Notes, ctx: Context) -> None: ...

    def parts(**more: Any) -> Any:
        return agent_of(node, tools=[keyed, _tool("done", KEYED, **more)]).parts()

    plain, undone = parts(), parts(undo=Undo(keyed, back))
    assert "undo" not in plain["tools"]["done"] and "on_failure" not in plain
    assert undone["tools"]["done"]["undo"] != parts(undo=Undo(keyed, lambda a, g: {}))["tools"]["done"]["undo"]
    assert agent_of(node, on_failure="leave").parts()["on_failure"] == "leave"
