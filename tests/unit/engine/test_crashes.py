from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from durableagents import Assistant, ChildFailure, Context, End, Refused
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.budget import NOTHING_USED, RESOURCES, UNLIMITED, Caps, Price, Usage, debit_of
from runs.engine.content.reads import MemoryReads
from runs.engine.errors import Rejected, ToolFailure
from runs.engine.memory import MemoryRun
from runs.engine.tools import Tool
from tests.cases import each_case
from tests.tiers import many
from tests.unit.engine.fickle import Fickle
from tests.unit.engine.mortal import Death, die_as_scheduled
from tests.unit.engine.screened import MEANWHILE, check_verdicts, glancing, guard, perform_screened
from tests.unit.engine.story import Story
from tests.world import AT_ONCE, IN_PLACE, Asked, Done, Item, Notes, Outside, Toolbox, agent_of, ends_with, only_for_now

Op = Literal[
    "look",
    "order",
    "mail",
    "pay",
    "wire",
    "hooked",
    "ask",
    "refused",
    "flaky",
    "away",
    "now",
    "random",
    "uuid",
    "sleep",
    "signal",
    "form",
    "think",
    "child",
    "orphan",
    "message",
    "kept",
    "cleaned",
    "cached",
    "doubtful",
    "stale",
    "rejected",
]
OPS: tuple[Op, ...] = get_args(Op)
UNSAFE = ("mail", "wire")
# A thousandth of a cent per input token, a hundredth per output token.
PRICE = Price(7, "mind", 10_000_000, 100_000_000)


class Told(Notes):
    """Also the messages that it received."""

    told: list[str] = []


def agent_for(program: Sequence[Sequence[Op]], tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> str | End:
        visit = len(state.seen)
        got = [await perform(ctx, tools, glance, op, f"{visit}.{i}") for i, op in enumerate(program[visit])]
        state.seen.append(got)
        return End(state.seen) if visit + 1 == len(program) else "node"

    agent_of(ends_with({}), name="helper")
    glance = glancing(tools.outside)
    agent = agent_of(
        node,
        tools=[*tools.all(), glance],
        assistants=[mind(tools)],
        state=Told,
        initial=lambda asked: Told(asked=asked),
    )

    @agent.message(takes=Item, answers=Done)
    def tell(state: Told, request: Item) -> Done:
        state.told.append(request.name)
        if request.name == "none":
            raise Refused("no")
        return Done(ref=request.name)

    agent._fingerprint = "made up"  # the real one, of a dozen schemas, costs more than the test
    return agent


def mind(tools: Toolbox) -> Assistant:
    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        got = [part.content["ref"] for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]  # type: ignore[index,call-overload]
        (found,) = (part.content for part in messages[0].parts if isinstance(part, UserPromptPart))
        call = ToolCallPart("final_result", {"ref": got[0]}) if got else ToolCallPart("order", {"name": str(found)})
        return ModelResponse(parts=[call])

    return Assistant(name="mind", instructions="Order.", output=Done, tools=[tools.order], offline=say, most_tokens=20)


async def perform(ctx: Context, tools: Toolbox, glance: Tool, op: Op, name: str) -> Any:
    match op:
        case "think":
            return (await ctx.think(mind(tools), name)).ref
        case "now" | "random" | "uuid":
            return str(await getattr(ctx, op)())
        case "sleep":
            await ctx.sleep(0)
            return None
        case "signal":
            return await ctx.signal(f"s.{name}")
        case "message":
            return (await ctx.message("tell")).name
        case "form":
            return (await ctx.ask("legal", title=name, schema=Item, prefilled={"name": name})).name
        case "pay" | "wire":
            try:
                return (await ctx.call(getattr(tools, op), Item(name=name, amount=5000))).ref
            except Rejected as no:
                return no.reason
        case "child" | "orphan":
            try:
                return (await ctx.child("helper", Asked(text=f"{op} {name}"), tags=["made"])).get("ref")
            except ChildFailure as failure:
                return failure.code
        case "kept" | "cleaned" | "cached" | "doubtful" | "stale":
            return await perform_screened(ctx, tools, glance, op, name)
        case "refused" | "flaky" | "away" | "rejected":
            try:
                return (await ctx.call(tools.order, Item(name=f"{op} {name}"))).ref
            except ToolFailure as failure:
                return failure.code
        case _:
            return (await ctx.call(getattr(tools, op), Item(name=name))).ref


async def tell(
    program: Sequence[Sequence[Op]], deaths: Sequence[Death], *, in_place: bool, caps: Caps = UNLIMITED
) -> tuple[Story, Outside]:
    """Drive a program to its end through these deaths, with people who answer truthfully at once."""
    outside = Fickle()
    tools = Toolbox(outside)
    story = Story(
        agent_for(program, tools),
        retry=IN_PLACE if in_place else AT_ONCE,
        caps=caps,
        prices={"mind": PRICE},
        screens=(guard,),
        reads=MemoryReads(),
    )
    die_as_scheduled(story, [Death(d.nth, d.when) for d in deaths])
    for _ in range(500):
        if story.run.state in ("completed", "failed", "cancelled") and story.run.lease is None:
            return story, outside
        assert await story.drive() != "operator", story.found
        story.run.skew += MEANWHILE
        answer(story, outside)
    raise AssertionError("it never ends")


def answer(story: Story, outside: Outside) -> None:
    """Answer every open wait: timers, approvals, callbacks, the operator."""
    for wait_id, wait in list(story.run.waits.items()):
        if wait.resolution is not None:
            continue
        match wait.spec.kind:
            case "timer":
                if not story.run.inbox:
                    story.run.message("tell", {"name": "b"})  # while the run waits for something else
                story.run.resolve(wait_id, "fired")
            case "message" if not story.run.inbox:
                story.run.message("tell", {"name": "none" if len(story.events(e.MessageReceived)) == 1 else "b"})
            case "signal":
                story.run.signal(wait.spec.detail["name"], wait.spec.detail["name"])
            case "input":
                story.run.answer({"name": wait.spec.detail["title"]}, slot=wait.spec.slot)
            case "approval":
                story.decide("rejected" if wait.spec.slot.endswith("3") else "approved", "because")
            case "child":
                end_child(story, wait.spec.detail["child"])
            case "webhook" if wait.spec.slot in outside.urls:
                story.call_back({"ref": f"called back {wait.spec.slot}"})
            case "reconcile":
                sent = [r for r in outside.requests if (r.slot, r.attempt) == (wait.spec.slot, wait.spec.attempt)]
                ref = f"{wait.spec.detail['tool']}:{name_in(sent[0].body)}" if sent else ""
                story.reconcile("happened" if sent else "did_not", receipt={"ref": ref} if sent else None)
            case "budget":
                detail = wait.spec.detail
                more = {detail["resource"]: detail["used"] + detail["reserved"] + detail["wanted"]}
                story.run.raise_budget(replace(story.run.caps, **more))
            case _:
                pass


def end_child(story: Story, child: str) -> None:
    spec = story.run.children[child]
    is_well = spec.input["text"].startswith("child")
    state, output = ("completed", {"ref": spec.input["text"]}) if is_well else ("failed", None)
    story.run.end_child(child, state, output=output, code="no_luck", used=_within(spec.caps))
    assert not story.run.end_child(child, "cancelled"), "told once"


def name_in(body: str) -> str:
    return Item.model_validate_json(body).name


deaths = st.lists(st.builds(Death, st.integers(1, 12), st.sampled_from(["before", "after", "call"])), max_size=8)
caps = st.builds(
    Caps,
    **{name: st.none() | st.integers(0, 3) for name in ("steps", "tool_calls", "model_calls")},
    tokens_out=st.none() | st.integers(0, 60),
    usd_micro=st.none() | st.integers(0, 9000),
)
programs = st.lists(st.lists(st.sampled_from(OPS), max_size=6), min_size=1, max_size=4)


@settings(max_examples=many(250, 30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs, deaths=deaths, in_place=st.booleans(), caps=caps)
def test_deaths_do_not_change_the_end(program: list[list[Op]], deaths: list[Death], in_place: bool, caps: Caps) -> None:
    """Also under any caps, which people raise as soon as they are asked."""
    with only_for_now():
        calm, calm_outside = asyncio.run(tell(program, [], in_place=in_place))
        story, outside = asyncio.run(tell(program, deaths, in_place=in_place, caps=caps))
    event(f"{len(story.events(e.RunClaimed)) - len(calm.events(e.RunClaimed))} more claims")
    assert story.run.state == calm.run.state == "completed"
    assert stable(program, story.output) == stable(program, calm.output)
    assert sorted(outside.executed()) == sorted(calm_outside.executed()), "each effect exactly once"
    check_the_record(story, outside)


def stable(program: Sequence[Sequence[Op]], output: list[list[Any]]) -> list[list[Any]]:
    return [
        [op if op in ("now", "random", "uuid") else value for op, value in zip(ops, values, strict=True)]
        for ops, values in zip(program, output, strict=True)
    ]


def check_the_record(story: Story, outside: Outside) -> None:
    """Assert what must hold of any journal, ledger and outside."""
    by_attempt: dict[tuple[str, int], list[Any]] = {}
    for request in outside.requests:
        by_attempt.setdefault((request.slot, request.attempt), []).append(request)
    intents = {(x.slot, x.attempt) for x in story.events(e.ToolInvoked)}
    for (slot, attempt), requests in by_attempt.items():
        assert len({(r.key, r.body) for r in requests}) == 1, "one key and one body, ever"
        name = requests[0].tool
        assert (slot, attempt) in intents or name == "look", "no effect without an intent"
        if name in UNSAFE:
            assert len(requests) == 1, "unsafe is sent once per attempt"
    for slot, attempt in intents:
        entries = [x for x in story.run.entries if (x.slot, x.attempt) == (slot, attempt)]
        facts = [x.fact for x in entries]
        assert facts.count("pending") == 1 and facts[0] == "pending"
        assert facts[-1] != "pending" or entries[0].tool == "ask", "only a callback's fact is written elsewhere"
    used = {(x.grant, x.slot) for x in story.events(e.ToolInvoked) if x.grant is not None}
    assert sum(w.is_consumed for w in story.run.waits.values()) == len(used), (
        "a yes lets one call through, whatever attempts it takes"
    )
    assert story.run.open_waits() == []
    check_messages(story)
    check_verdicts(story)
    made, ended = story.events(e.ChildStarted), story.events(e.ChildEnded)
    assert [x.child for x in made] == list(story.run.children), "each is made with its intent, and none without"
    assert len({x.child for x in made}) == len({(x.slot, x.attempt) for x in made}) == len(made)
    assert sorted(x.child for x in ended) == sorted(x.child for x in made), "each end is told once"
    check_what_was_spent(story)


def check_messages(story: Story) -> None:
    """Assert that each message is handled once and in order, and that the last state shows them."""
    sent, handled = story.events(e.MessageReceived), story.events(e.MessageHandled)
    assert [x.n for x in sent] == list(range(1, len(sent) + 1))
    assert [x.n for x in handled] == list(range(1, len(handled) + 1))
    assert story.run.inbox == [], "handled, or told that the run has ended"
    items = [x.payload["change"]["told"] for x in handled if x.outcome == "answered"]
    assert items == [["b"] * (i + 1) for i in range(len(items))], "each sees what the others left, and no refusal"


def _within(caps: Caps) -> Usage:
    """Return a child's usage: two calls and a small price, within its caps."""
    wanted = {"steps": 2, "tool_calls": 2, "usd_micro": 5}
    return Usage(**{name: min(much, caps.stated().get(name, much)) for name, much in wanted.items()})


def sum_of_debits(story: Story) -> Usage:
    """Sum up the journal independently of the engine: a step per outcome, and each debit."""
    used = NOTHING_USED
    for recorded in story.run.events:
        match recorded:
            case e.BudgetDebited():
                used += debit_of(recorded)
            case e.ModelResponded() | e.ModelFailed():
                used += Usage(steps=1)
            case e.ChildEnded():
                used += Usage(**{name: getattr(recorded, name) for name in RESOURCES})
            case e.CachedReadTaken() | e.ToolReadAnew():
                used += Usage(steps=1, tool_calls=1)
            case e.ToolRead() | e.ToolReturned() | e.ToolFailed() | e.ToolAccepted():
                used += Usage(steps=1, tool_calls=1)
    return used


def check_what_was_spent(story: Story) -> None:
    """Assert that usage is the sum of the debits, one per sent request, estimated while unknown."""
    debits, routes = story.events(e.BudgetDebited), story.events(e.ModelRouted)
    assert story.run.used == sum_of_debits(story)
    assert sorted((d.slot, d.n) for d in debits) == sorted((r.slot, r.n) for r in routes)
    assert sum(not d.is_estimate for d in debits) == len(story.events(e.ModelResponded))
    for (
        name,
        most,
    ) in story.run.caps.stated().items():  # raised by as much as was wanted, so it covers everything
        used_ = getattr(story.run.used, name)
        assert used_ <= most or name in ("tokens_out", "usd_micro"), (name, used_, most)


@settings(max_examples=many(25, 4), deadline=None)
@given(program=st.lists(st.lists(st.sampled_from(OPS), max_size=4), min_size=1, max_size=2))
def test_every_prefix_of_a_journal_leads_to_the_same_end(program: list[list[Op]]) -> None:
    """A process may die after any commit: the record up to there must suffice."""
    with only_for_now():
        whole, _ = asyncio.run(tell(program, [], in_place=True))
        for commit in whole.commits:
            story, outside = asyncio.run(resume(program, whole, commit))
            assert stable(program, story.output) == stable(program, whole.output)
            check_messages(story)
            values = [x.payload for x in story.events(e.ValueRead)]
            recorded = [x.payload for x in whole.run.events[:commit] if isinstance(x, e.ValueRead)]
            assert values[: len(recorded)] == recorded, "what was once read is never read again"
            assert not [x for x, n in Counter(outside.executed()).items() if n > 1]


async def resume(program: Sequence[Sequence[Op]], whole: Story, upto: int) -> tuple[Story, Outside]:
    """Return a run whose journal is the first events of another's, in its state at that time."""
    outside = Fickle()
    story = Story(agent_for(program, Toolbox(outside)), retry=IN_PLACE, screens=(guard,), reads=MemoryReads())
    story.run.skew = MEANWHILE * 500
    run: MemoryRun = story.run
    run.id = whole.run.id
    run.events = []
    run.append(whole.run.events[:upto])
    run.snapshots = [(seq, snapshot) for seq, snapshot in whole.run.snapshots if seq <= upto]
    for event_ in run.events:
        if isinstance(event_, e.ToolInvoked):
            outside.urls[event_.slot or ""] = "known"
    made = {event_.child for event_ in run.events if isinstance(event_, e.ChildStarted)}
    run.children = {child: spec for child, spec in whole.run.children.items() if child in made}
    restore_waits(run, whole)
    for _ in range(200):
        answer(story, outside)
        if await story.drive() in ("completed", "failed"):
            return story, outside
        assert not story.events(e.OperatorNeeded), story.found
    raise AssertionError("it never ends")


def restore_waits(run: MemoryRun, whole: Story) -> None:
    resolved: dict[tuple[Any, ...], str] = {}
    for event_ in run.events:
        match event_:
            case e.WaitResolved():
                resolved[event_.slot, event_.attempt, event_.wait, event_.n] = event_.resolution
            case e.ApprovalDecided():
                resolved[event_.slot, 0, "approval", event_.n] = event_.verdict
            case e.CallbackReceived():
                resolved[event_.slot, event_.attempt, "webhook", 0] = "received"
            case e.SignalTaken():
                resolved[event_.slot, event_.attempt, "signal", 0] = "received"
            case e.ChildEnded():
                resolved[event_.slot, event_.attempt, "child", 0] = event_.state
            case e.ToolReconciled(by=by) if by != "hook":
                resolved[event_.slot, event_.attempt, "reconcile", event_.n] = event_.verdict
            case e.InputAnswered():
                resolved[event_.slot, event_.attempt, "input", event_.n] = "answered"
    opened = {(x.slot, x.attempt, x.wait, x.n) for x in run.events if isinstance(x, e.WaitOpened)}
    opened |= {(x.slot, 0, "approval", x.n) for x in run.events if isinstance(x, e.ApprovalRequested)}
    taken = {(x.name, x.n) for x in run.events if isinstance(x, e.SignalTaken)}
    handled = {x.n for x in run.events if isinstance(x, e.MessageHandled)}
    run.inbox = [x for x in run.events if isinstance(x, e.MessageReceived) and x.n not in handled]
    run.kept = [x for x in run.events if isinstance(x, e.SignalReceived) and (x.name, x.n) not in taken]
    used = {x.grant: (x.slot, x.attempt) for x in run.events if isinstance(x, e.ToolInvoked) and x.grant is not None}
    for wait_id, wait in whole.run.waits.items():
        identity = (wait.spec.slot, wait.spec.attempt, wait.spec.kind, wait.spec.n)
        if identity in opened:
            run.waits[wait_id] = type(wait)(wait.spec, wait.gate)
            run.waits[wait_id].resolution = resolved.get(identity)
            if resolved.get(identity) == "approved":
                run.waits[wait_id].grant_hash = wait.grant_hash
                run.waits[wait_id].is_consumed = wait.spec.slot in used
                run.waits[wait_id].used_by = used.get(wait.spec.slot, ("", -1))


@pytest.mark.long
@each_case("when", ["before", "after"])
@each_case("nth", range(1, 34))
async def test_a_story_with_everything_survives_a_death_at_every_single_write(nth: int, when: Any) -> None:
    program: list[list[Op]] = [
        ["look", "order", "now", "mail"],
        ["wire", "pay", "ask", "sleep"],
        ["refused", "child", "away", "orphan", "hooked"],
    ]
    calm, calm_outside = await tell(program, [], in_place=False)
    story, outside = await tell(program, [Death(nth, when)], in_place=False)
    assert stable(program, story.output) == stable(program, calm.output)
    assert outside.executed() == calm_outside.executed()
    check_the_record(story, outside)
