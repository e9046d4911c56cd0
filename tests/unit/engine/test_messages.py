from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End, Refused, Taken, TimedOut
from ledger import events as e
from runs.engine.errors import DefinitionError
from tests.cases import each_case
from tests.unit.engine.mortal import Death, mortal
from tests.unit.engine.story import Story
from tests.world import Asked, Item, Killed, Toolbox, agent_of, ends_with


class Add(BaseModel):
    name: str
    pages: int = Field(default=1, ge=1)


class Count(BaseModel):
    documents: int


class Desk(BaseModel):
    documents: list[str] = []
    pages: int = 0
    steps: list[str] = []


def desk(*functions: Any, tools: Toolbox | None = None, **more: Any) -> Agent:
    """Return an agent that takes documents at any time, unless they are called `none`."""
    agent = agent_of(
        *functions, tools=tools.all() if tools else (), input=Asked, state=Desk, initial=lambda asked: Desk(), **more
    )

    @agent.message(takes=Add, answers=Count)
    def add(state: Desk, request: Add) -> Count:
        state.documents.append(request.name)
        state.pages += request.pages
        if request.name == "none":
            raise Refused("there is no such document", code="no_document")
        if request.name == "bug":
            raise RuntimeError("a bug of the author's")
        return Count(documents=len(state.documents))

    @agent.message(takes=Add)
    def forget(state: Desk, request: Add) -> None:
        state.documents.remove(request.name)

    agent.validate()
    return agent


def outcomes(story: Story) -> list[tuple[int, str, int]]:
    return [(x.n, x.outcome, x.place) for x in story.events(e.MessageHandled)]


async def waits(state: Desk, ctx: Context) -> End:
    """Waits for a signal, a document having come or not."""
    state.steps.append("before")
    await ctx.signal("go")
    state.steps.append(f"after {len(state.documents)}")
    return End(state.model_dump())


async def test_a_message_that_comes_while_the_run_waits_is_answered_and_changes_the_state() -> None:
    story = Story(desk(waits))
    assert await story.drive() == "parked"
    assert story.run.message("add", {"name": "a", "pages": 3}) == 1
    assert story.run.state == "running"
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    (handled,) = story.events(e.MessageHandled)
    assert (handled.outcome, handled.visit, handled.place, handled.calls) == ("answered", "0.1", 1, [])
    assert handled.payload == {"answer": {"documents": 1}, "change": {"documents": ["a"], "pages": 3}}
    story.run.message("add", {"name": "b"})
    story.run.message("forget", {"name": "a"})
    assert await story.drive() == "parked"
    assert outcomes(story) == [(1, "answered", 1), (2, "answered", 1), (3, "answered", 1)]
    assert story.events(e.MessageHandled)[1].payload["answer"] == {"documents": 2}, "it sees what the first one changed"
    story.run.signal("go")
    assert await story.drive() == "completed"
    assert story.output == {"documents": ["b"], "pages": 4, "steps": ["before", "after 1"]}


@each_case("killed", [False, True])
async def test_messages_before_and_between_nodes_are_handled_there(killed: bool) -> None:
    """Also where the worker dies between a message's answer and the next node's beginning."""

    async def first(state: Desk, ctx: Context) -> str:
        state.steps.append(f"first {state.documents}")
        if len(story.events(e.MessageReceived)) == 1:
            story.run.message("add", {"name": "b"})
        return "second"

    async def second(state: Desk, ctx: Context) -> End:
        return End([*state.steps, state.documents])

    story = Story(desk(first, second), journal=mortal([Death(1, "after"), Death(2, "after")] if killed else []))
    story.run.message("add", {"name": "a"})
    assert not killed or [await story.drive() for _ in range(2)] == ["killed", "killed"]
    assert await story.drive() == "completed" and story.output == ["first ['a']", ["a", "b"]]
    assert [(x.visit, x.place) for x in story.events(e.MessageHandled)] == [("0.0", 0), ("0.1", 0)]


@each_case(("name", "outcome", "code"), [("none", "refused", "no_document"), ("bug", "failed", "handler_error")])
async def test_a_refusal_leaves_no_trace_in_the_state_and_is_on_record(name: str, outcome: str, code: str) -> None:
    story = Story(desk(waits))
    assert await story.drive() == "parked"
    story.run.message("add", {"name": name})
    story.run.message("add", {"name": "a"})
    assert await story.drive() == "parked"
    first, second = story.events(e.MessageHandled)
    assert (first.outcome, first.payload["code"]) == (outcome, code) and "change" not in first.payload
    assert second.payload == {"answer": {"documents": 1}, "change": {"documents": ["a"], "pages": 1}}
    story.run.signal("go")
    assert await story.drive() == "completed" and story.output["documents"] == ["a"]


async def test_a_message_that_no_code_here_takes_fails_and_the_run_goes_on() -> None:
    story = Story(agent_of(waits_for_nobody))
    assert await story.drive() == "parked"
    story.run.message("add", {"name": "a"})
    assert await story.drive() == "parked"
    (handled,) = story.events(e.MessageHandled)
    assert (handled.outcome, handled.payload["code"]) == ("failed", "unknown_message")


async def waits_for_nobody(state: Any, ctx: Context) -> End:
    await ctx.signal("go")
    return End(None)


async def test_a_node_can_wait_for_messages_and_gets_one_at_a_time() -> None:
    async def collect(state: Desk, ctx: Context) -> End:
        seen: list[Any] = []
        while len(state.documents) < 3:
            taken = await ctx.message("add")
            assert isinstance(taken, Taken)
            seen.append([taken.name, taken.n, taken.answer, list(state.documents)])
        return End(seen)

    story = Story(desk(collect))
    assert await story.drive() == "parked" and story.run.state == "waiting_event"
    story.run.message("forget", {"name": "b"})  # fails, and wakes nobody
    story.run.message("add", {"name": "none"})
    assert await story.drive() == "parked" and len(story.waiting("message")) == 1
    for name in "abc":
        story.run.message("add", {"name": name})
    assert await story.drive() == "completed"
    assert story.output == [
        ["add", 3, {"documents": 1}, ["a"]],
        ["add", 4, {"documents": 2}, ["a", "b"]],
        ["add", 5, {"documents": 3}, ["a", "b", "c"]],
    ]


async def test_when_the_time_for_a_message_has_run_out_it_is_for_anyone_who_waits_next() -> None:
    async def collect(state: Desk, ctx: Context) -> End:
        first = await ctx.message(within=timedelta(minutes=1), or_else="nobody came")
        second = await ctx.message("add")
        try:
            await ctx.message("add", within=timedelta(minutes=1))
        except TimedOut as error:
            return End([first, second.n, str(error), state.documents])
        raise AssertionError

    story = Story(desk(collect))
    assert await story.drive() == "parked"
    ((wait_id, _),) = story.waiting("message")
    story.run.message("add", {"name": "late"})
    assert story.run.resolve(wait_id, "timed_out")
    assert await story.drive() == "parked"
    ((wait_id, _),) = story.waiting("message")
    assert story.run.resolve(wait_id, "timed_out")
    assert await story.drive() == "completed"
    assert story.output == ["nobody came", 1, "message add did not arrive before the deadline", ["late"]]


async def test_while_branches_wait_the_change_comes_when_all_of_them_are_done(tools: Toolbox) -> None:
    async def node(state: Desk, ctx: Context) -> End:
        async def branch(name: str) -> list[str]:
            await ctx.signal(name)
            got = await ctx.call(tools.look, Item(name=name))
            return [got.ref, *state.documents]

        return End([await ctx.gather(branch("x"), branch("y")), state.documents])

    story = Story(desk(node, tools=tools))
    assert await story.drive() == "parked"
    story.run.message("add", {"name": "a"})
    assert await story.drive() == "parked"
    story.run.signal("y")
    assert await story.drive() == "parked"
    story.run.message("add", {"name": "b"})
    assert await story.drive() == "parked"
    assert story.events(e.MessageHandled)[1].payload["answer"] == {"documents": 2}
    story.run.signal("x")
    assert await story.drive() == "completed"
    assert story.output == [[["look:x"], ["look:y"]], ["a", "b"]]


async def test_one_that_comes_in_the_moment_of_parking_is_answered_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(desk(waits))
    story.kill_at = []
    sent: list[int] = []
    leave = story.journal.leave

    async def late(self: Any, how: Any, *args: Any, **more: Any) -> Any:
        if how == "park" and len(sent) < 3:
            sent.append(story.run.message("add", {"name": f"{len(sent)}"}))
        return await leave(self, how, *args, **more)

    monkeypatch.setattr(story.journal, "leave", late)
    assert await story.drive() == "parked"
    assert outcomes(story) == [(1, "answered", 1), (2, "answered", 1), (3, "answered", 1)]
    assert not story.events(e.OperatorNeeded)


@each_case("end", ["completes", "fails"])
async def test_what_the_run_had_not_come_to_at_its_end_is_never_handled(end: str) -> None:
    async def last(state: Desk, ctx: Context) -> End:
        story.run.message("add", {"name": "too late"})
        if end == "fails":
            raise RuntimeError("no")
        return End(state.documents)

    story = Story(desk(last))
    assert await story.drive() == ("completed" if end == "completes" else "failed")
    assert story.run.inbox == [] and story.events(e.MessageHandled) == []


async def test_a_pause_comes_before_the_next_message() -> None:
    story = Story(desk(waits))
    assert await story.drive() == "parked"
    for name in "ab":
        story.run.message("add", {"name": name})
    answer = story.run.append

    def and_pause(events: Any) -> None:
        answer(events)
        story.run.is_pause_requested |= any(isinstance(x, e.MessageHandled) for x in events)

    story.run.append = and_pause  # type: ignore[method-assign]
    assert await story.drive() == "paused"
    assert len(outcomes(story)) == 1 and len(story.run.inbox) == 1


async def test_a_retry_waits_again_for_a_message_that_nobody_sent_in_time() -> None:
    async def collect(state: Desk, ctx: Context) -> End:
        taken = await ctx.message("add", within=timedelta(minutes=1))
        return End([taken.n, state.documents])

    story = Story(desk(collect))
    assert await story.drive() == "parked"
    story.run.resolve(story.one_waiting("message")[0], "timed_out")
    assert await story.drive() == "failed" and story.failure.code == "timed_out"
    story.retry_run()
    assert await story.drive() == "parked" and story.one_waiting("message")[1].spec.attempt == 1
    story.run.message("add", {"name": "a"})
    assert await story.drive() == "completed" and story.output == [1, ["a"]]


async def test_a_draining_worker_takes_none_between_nodes_and_answers_before_it_parks() -> None:
    async def first(state: Desk, ctx: Context) -> str:
        if not story.events(e.MessageReceived):
            story.run.message("add", {"name": "a"})
            story.control.ask("drain")
        return "second"

    async def second(state: Desk, ctx: Context) -> End:
        await ctx.sleep(0)
        return End(state.documents)

    story = Story(desk(first, second))
    assert await story.drive() == "parked" and outcomes(story) == [(1, "answered", 1)]
    story.run.resolve(story.one_waiting("timer")[0], "fired")
    assert await story.drive() == "completed" and story.output == ["a"]


async def test_what_a_node_read_is_on_record_before_what_a_message_made_of_it() -> None:
    async def node(state: Desk, ctx: Context) -> str:
        if not story.events(e.MessageReceived):
            story.run.message("show", {"name": "x"})
        state.steps.append(str(await ctx.uuid()))
        return "waits"

    agent = desk(node, waits)

    @agent.message(takes=Add, answers=Desk)
    def show(state: Desk, request: Add) -> Desk:
        return state

    story = Story(agent)
    append, dead = story.run.append, []

    def dies(events: Any) -> None:
        append(events)
        if any(isinstance(x, e.MessageHandled) for x in events) and not dead:
            story.run.inbox.clear()
            raise dead.append(True) or Killed("after it")  # type: ignore[func-returns-value]

    story.run.append = dies  # type: ignore[method-assign]
    assert await story.drive() == "killed" and dead
    assert await story.drive() == "parked"
    story.run.signal("go")
    assert await story.drive() == "completed"
    (handled,) = story.events(e.MessageHandled)
    assert handled.payload["answer"]["steps"] == story.output["steps"][:1]


async def test_a_state_that_is_no_plain_data_where_the_node_waits_is_told_to_the_sender() -> None:
    async def node(state: Any, ctx: Context) -> End:
        state.documents.append(object())
        await ctx.signal("go")
        return End("done")

    story = Story(desk(node))
    assert await story.drive() == "parked"
    story.run.message("add", {"name": "a"})
    assert await story.drive() == "parked"
    (handled,) = story.events(e.MessageHandled)
    assert handled.outcome == "failed" and "be recorded" in handled.payload["message"]
    story.run.signal("go")
    assert await story.drive() == "completed"


@each_case("when", ["before", "after"])
@each_case("nth", range(1, 17))
async def test_whenever_the_worker_dies_the_end_is_the_same(nth: int, when: Literal["before", "after"]) -> None:
    """The messages come at the same points of the run."""
    calm, story = await told([]), await told([Death(nth, when)])
    assert len(story.events(e.RunClaimed)) > len(calm.events(e.RunClaimed)) or (nth, when) == (16, "after")
    assert [x.n for x in story.events(e.MessageHandled)] == [1, 2, 3, 4, 5]
    told_then, told_now = ([x.payload for x in s.events(e.MessageHandled)] for s in (calm, story))
    assert told_now == told_then and story.output == calm.output


async def told(deaths: list[Death]) -> Story:
    async def first(state: Desk, ctx: Context) -> str:
        state.steps.append(str(len(state.documents)))
        await ctx.message("add")
        state.steps.append(str(state.documents))
        await ctx.gather(ctx.signal("go"), ctx.signal("go"))
        state.steps.append(str(state.documents))
        return "second"

    async def second(state: Desk, ctx: Context) -> End:
        await ctx.sleep(0)
        return End(state.model_dump())

    async def drive() -> str:
        while (how := await story.drive()) == "killed" and story.run.state != "completed":
            pass
        return story.run.state if how == "killed" else how

    story = Story(desk(first, second), journal=mortal(deaths))
    story.run.message("add", {"name": "a"})
    assert await drive() == "parked"
    story.run.message("add", {"name": "none"})
    story.run.message("add", {"name": "b"})
    assert await drive() == "parked"
    story.run.signal("go")
    story.run.message("add", {"name": "c", "pages": 7})
    assert await drive() == "parked"
    story.run.message("forget", {"name": "a"})
    story.run.signal("go")
    assert await drive() == "parked"
    story.run.resolve(story.one_waiting("timer")[0], "fired")
    assert await drive() == "completed"
    return story


# --- declarations ---


def test_what_is_declared_wrongly_is_refused_by_name() -> None:
    agent = desk(ends_with({}))
    for wrong, problem in [
        ({"takes": dict}, "is not a Pydantic model"),
        ({"takes": Add, "name": "Add"}, "use lower_snake_case"),
        ({"takes": Add, "answers": list}, "is not a Pydantic model"),
        ({"takes": Add, "name": "add"}, "two messages"),
    ]:
        with pytest.raises(DefinitionError, match=problem):
            agent.message(**{"name": "good", **wrong})(lambda state, request: None)  # type: ignore[arg-type]

    async def waits_for(state: Any, request: Any) -> None: ...

    with pytest.raises(DefinitionError, match="plain `def`"):
        agent.message(takes=Add)(waits_for)
    with pytest.raises(DefinitionError, match="plain `def`"):
        agent.view(answers=Count)(waits_for)
    with pytest.raises(DefinitionError, match="is a single text"):
        agent_of(ends_with({}), signals="go")
    with pytest.raises(DefinitionError, match="is invalid: it must match"):
        agent_of(ends_with({}), signals=["Go away"])


async def test_a_node_that_waits_for_what_nobody_can_send_is_told_at_once() -> None:
    async def signalled(state: Any, ctx: Context) -> End:
        return End(await ctx.signal("other"))

    async def messaged(state: Any, ctx: Context) -> End:
        return End(await ctx.message("other"))

    for node, more, problem in ((signalled, {"signals": ["go"]}, "declares no signal"), (messaged, {}, "takes no mes")):
        story = Story(agent_of(node, **more))
        assert await story.drive() == "failed"
        assert problem in story.events(e.RunFailed)[0].payload["message"]


def test_messages_are_part_of_the_fingerprint_and_views_are_not() -> None:
    plain_one = agent_of(waits_for_nobody)
    before = plain_one.fingerprint()

    @plain_one.view(answers=Count)
    def size(state: Any) -> Count:
        return Count(documents=0)

    plain_one._fingerprint = ""
    assert plain_one.fingerprint() == before

    @plain_one.message(takes=Add)
    def add(state: Any, request: Any) -> None: ...

    assert plain_one.fingerprint() != before
    assert "messages" not in agent_of(waits_for_nobody).parts()
