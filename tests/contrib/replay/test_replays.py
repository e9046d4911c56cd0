from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durableagents import Context, End, TransportError
from durableagents.contrib.replay.checkpoints import CheckpointDiffers, replay_checkpoint, replay_checkpoints
from durableagents.contrib.replay.files import InvalidRecording, file_data, file_text, parse_file
from durableagents.testing import Harness, answers, calls
from runs.engine.agents import Agent
from runs.engine.migration import Formats, UnknownFormat
from runs.engine.recordings.recording import Recording, recordings_of
from runs.engine.recordings.replaying import replay
from tests.cases import each_case
from tests.unit.engine.conftest import _agents_of_this_test
from tests.unit.testing.desk import Letter, Order, Refund, clerk, desk, look_up, post, refund
from tests.world import Notes, agent_of

__all__ = ["_agents_of_this_test"]


def on_file(story: Harness) -> list[Recording]:
    """Every visit of a story's runs, written down and read again."""
    made = []
    for member in story._family.members:
        cuts = [(seq, s.node, s.visit, s.generation, s.fingerprint, s.state) for seq, s in member.run.snapshots]
        made += recordings_of(member.run.id, member.run.events, cuts, depth=member.run.depth)
    return [parse_file(file_text(each)) for each in made]


def difference(recording: Recording, agent: Agent) -> str:
    found = asyncio.run(replay(recording, agent))
    return "" if found.difference is None else str(found.difference)


def plain() -> Harness:
    return Harness(desk, {})


def approved() -> Harness:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.approve()
    return story


def rejected() -> Harness:
    story = Harness(desk, {"order_id": "A-2", "what": "refund"})
    story.reject()
    return story


def refused() -> Harness:
    return Harness(desk, {"what": "refund"}, tools={"refund": lambda args, call: 1 / 0})


def asked() -> Harness:
    story = Harness(desk, {"what": "question"})
    story.message("note", {"order_id": "B"})
    story.answer({"street": "Elm"})
    return story


def in_doubt() -> Harness:
    story = Harness(desk, {"what": "question"})
    story.crash("post")
    story.answer({"street": "Elm"})
    return story


def branches() -> Harness:
    story = Harness(desk, {"what": "both"})
    story.call_back({"refund_id": "R"})
    story.answer({"street": "Elm"})
    return story


def thought() -> Harness:
    turns = [calls("look_up", order_id="A-2"), calls("refund", order_id="A-2", usd=12000), answers(usd=1)]
    story = Harness(desk, {"what": "think"}, models={"clerk": [TransportError("outage"), *turns]})
    story.approve()
    return story


def signalled() -> Harness:
    story = Harness(desk, {"what": "signal"})
    story.signal("arrived", 3)
    return story


def slept() -> Harness:
    story = Harness(desk, {"what": "sleep"})
    story.advance(hours=1)
    return story


def with_child() -> Harness:
    story = Harness(desk, {"what": "child"})
    story.approve()
    return story


def troubled() -> Harness:
    story = Harness(desk, {"what": "transfer"})
    story.fail("post", times=2)
    story.call_back({"refund_id": "R"})
    return story


STORIES: list[Callable[[], Harness]] = [
    plain,
    approved,
    rejected,
    refused,
    asked,
    in_doubt,
    branches,
    thought,
    signalled,
    slept,
    with_child,
    troubled,
    lambda: Harness(desk, {"what": "values"}),
    lambda: Harness(desk, {"what": "renew"}),
    lambda: Harness(desk, {"what": "fail"}),
    lambda: Harness(desk, {"what": "bug"}),
]
every_story = pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)


@every_story
def test_the_same_code_does_the_same(tell: Callable[[], Harness]) -> None:
    recordings = on_file(tell())
    assert recordings
    for recording in recordings:
        assert difference(recording, _agent(recording)) == ""


@every_story
def test_wherever_the_record_ends_nothing_differs_and_nothing_leaves(tell: Callable[[], Harness]) -> None:
    """A worker may have died, or an export been made, after any event."""
    story = tell()
    left = len(story.sent)
    for recording in on_file(story):
        for end in range(len(recording.events)):
            cut = replace(recording, events=recording.events[:end])
            assert difference(cut, _agent(recording)) == "", [event.KIND for event in cut.events]
    assert len(story.sent) == left


def _agent(recording: Recording) -> Agent:
    from runs.engine.agents import registry

    return registry.find(recording.graph_id)


# --- other code -------------------------------------------------------------------------------------------------------


async def begin(notes: Notes, ctx: Context) -> Any:
    found = await ctx.call(look_up, Order(order_id="A-1"))
    notes.seen.append((await ctx.call(refund, Refund(order_id="A-1", usd=found.usd))).refund_id)
    notes.seen.append((await ctx.think(clerk, "How much?")).usd)
    return "close"


async def close(notes: Notes, ctx: Context) -> Any:
    await ctx.call(post, Letter(to="Ada", text="done"))
    return End(notes.seen)


def recorded() -> tuple[Recording, Recording]:
    agent = agent_of(begin, close, name="replayed", tools=[look_up, refund, post], assistants=[clerk])
    story = Harness(agent, {}, models={"clerk": [answers(usd=7)]})
    story.assert_completed(["R-A-1", 7])
    first, last = on_file(story)
    return first, last


def other(*functions: Any) -> Agent:
    return agent_of(*functions, name="replayed", tools=[look_up, refund, post], assistants=[clerk])


def changed(body: Callable[[Notes, Context], Any], name: str = "begin") -> Agent:
    body.__name__ = name
    return other(*(body if each.__name__ == name else each for each in (begin, close)))


async def leaves_out(notes: Notes, ctx: Context) -> Any:
    await ctx.call(look_up, Order(order_id="A-1"))
    return "close"


async def asks_another(notes: Notes, ctx: Context) -> Any:
    await ctx.call(look_up, Order(order_id="A-1"))
    await ctx.call(post, Letter(to="Ada", text="hello"))
    return "close"


async def other_arguments(notes: Notes, ctx: Context) -> Any:
    await ctx.call(look_up, Order(order_id="A-1"))
    await ctx.call(refund, Refund(order_id="A-1", usd=251))
    return "close"


async def asks_more(notes: Notes, ctx: Context) -> Any:
    await begin(notes, ctx)
    await ctx.call(post, Letter(to="Ada", text="one more"))
    return "close"


async def reads_more(notes: Notes, ctx: Context) -> Any:
    await begin(notes, ctx)
    await ctx.call(look_up, Order(order_id="A-2"))
    return "close"


async def other_prompt(notes: Notes, ctx: Context) -> Any:
    found = await ctx.call(look_up, Order(order_id="A-1"))
    notes.seen.append((await ctx.call(refund, Refund(order_id="A-1", usd=found.usd))).refund_id)
    notes.seen.append((await ctx.think(clerk, "How little?")).usd)
    return "close"


async def other_state(notes: Notes, ctx: Context) -> Any:
    await begin(notes, ctx)
    notes.seen.append("more")
    return "close"


async def other_way(notes: Notes, ctx: Context) -> Any:
    await begin(notes, ctx)
    return "begin"


async def breaks(notes: Notes, ctx: Context) -> Any:
    await ctx.call(look_up, Order(order_id="A-1"))
    raise RuntimeError("new code, new bug")


@each_case(
    ("body", "words"),
    [
        (
            leaves_out,
            'at 0.1/2 the record says: refund({"order_id": "A-1", "usd": 250}); the code: does not request it',
        ),
        (asks_another, "at 0.1/2 the record says: refund("),
        (other_arguments, "usd is 250 in the record, but 251 from the code"),
        (
            asks_more,
            "at 0.1/4 the record says: nothing more: the run goes on to node 'close'; the code: asks for post(",
        ),
        (reads_more, "at 0.1/4 the record says: nothing more"),
        (other_prompt, 'prompt is "How much?" in the record, but "How little?" from the code'),
        (other_state, "seen has 2 in the record, but 3 from the code"),
        (other_way, "the record says: the run goes on to node 'close'; the code: goes on to node 'begin'"),
        (breaks, "fails with node_error: RuntimeError: new code, new bug"),
    ],
)
def test_other_code_is_told_by_the_first_thing_that_it_does_otherwise(body: Any, words: str) -> None:
    first, _ = recorded()
    assert words in difference(first, changed(body))


def test_another_output_another_node_and_a_state_that_does_not_load_are_differences() -> None:
    first, last = recorded()

    async def ends_otherwise(notes: Notes, ctx: Context) -> Any:
        await ctx.call(post, Letter(to="Ada", text="done"))
        return End("otherwise")

    assert "the code: ends with" in difference(last, changed(ends_otherwise, "close"))
    gone = agent_of(close, name="replayed", tools=[post])
    assert "the run is at node 'begin'; the code: has close" in difference(first, gone)
    damaged = replace(first, state={"seen": "no list"})
    assert "does not take it" in difference(damaged, other(begin, close))


def test_a_call_before_the_records_end_is_a_difference_also_where_the_run_is_under_way() -> None:
    first, _ = recorded()
    under_way = replace(first, events=first.events[:-1])

    async def skips_to_more(notes: Notes, ctx: Context) -> Any:
        await ctx.call(look_up, Order(order_id="A-1"))
        await ctx.call(refund, Refund(order_id="A-1", usd=250))
        await ctx.call(post, Letter(to="Ada", text="instead of thinking"))

    assert "at 0.1/3" in difference(under_way, changed(skips_to_more))
    found = asyncio.run(replay(under_way, changed(asks_more)))
    assert found.difference is None and found.beyond == ['post({"text": "one more", "to": "Ada"})']
    assert found.answered == ["0.1/1", "0.1/2", "0.1/3/0/0"]


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_replayed_and_what_fails_is_kept_with_the_difference(tmp_path: Path) -> None:
    first, last = recorded()
    for recording in (first, last):
        (tmp_path / f"{recording.name}.json").write_text(file_text(recording))
    done = replay_checkpoints(tmp_path, [other(begin, close)])
    assert sorted(each.answered for each in done) == [1, 3]
    with pytest.raises(CheckpointDiffers, match=r"1 of 2 checkpoints: .*replayed@1.0.0.*usd is 250 in the record"):
        replay_checkpoints(tmp_path, [changed(other_arguments)], dump=tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    assert "usd is 250 in the record" in json.loads(kept.read_text())["notes"][0]
    with pytest.raises(CheckpointDiffers, match="usd is 250"):
        replay_checkpoint(kept, [changed(other_arguments)])


def test_what_can_not_be_replayed_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointDiffers, match="there is no checkpoint"):
        replay_checkpoints(tmp_path)
    first, _ = recorded()
    file = tmp_path / "one.json"
    file.write_text(file_text(first))
    agent = other(begin, close)
    with pytest.raises(CheckpointDiffers, match=r"replayed@1.0.0 is not installed here; installed are returns@1.0.0"):
        replay_checkpoint(file, [desk])
    newer = agent_of(begin, close, name="replayed", version="2.0.0", tools=[look_up, refund, post], assistants=[clerk])
    assert replay_checkpoint(file, [newer], newest=True).answered == 3
    for text, words in (
        ("{", "it is not JSON"),
        ("{}", "it is not a durableagents checkpoint"),
        (file_text(first).replace('"format": 1', '"format": 2'), "of format 2, but this version reads up to 1"),
        (file_text(first).replace('"format": 1', '"format": 0'), "the oldest readable format is 1"),
        (file_text(first).replace('"format": 1', '"format": "one"'), "which is not a number"),
        (file_text(first).replace('"schema_version": 1', '"schema_version": 9'), "the checkpoint is of format 9"),
        (file_text(first).replace("RunCreated", "RunInvented"), "it is damaged"),
        (
            file_text(first).replace('"graph_id": "replayed@1.0.0"', '"graph_id": "other@1.0.0"'),
            "it is damaged: it is for",
        ),
        (json.dumps({**file_data(first), "events": [3]}), "it is damaged"),
    ):
        file.write_text(text)
        with pytest.raises(CheckpointDiffers, match=words):
            replay_checkpoint(file, [agent])
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointDiffers, match="it is neither text"):
        replay_checkpoint(file, [agent])


def test_older_formats_are_brought_up_step_by_step() -> None:
    three = Formats("thing", 3, {1: lambda x: [*x, "two"], 2: lambda x: [*x, "three"]})
    assert (
        three.upgraded(1, []) == ["two", "three"] and three.upgraded(2, []) == ["three"] and three.upgraded(3, []) == []
    )
    for number in (0, 4, True, None, "1"):
        with pytest.raises(UnknownFormat):
            three.upgraded(number, [])
    for steps in ({2: str}, {1: str}, {1: str, 3: str}, {1: str, 2: str, 3: str}):
        if sorted(steps) != [2]:
            with pytest.raises(ValueError, match="have a gap, or go beyond it"):
                Formats("thing", 3, steps)
    with pytest.raises(InvalidRecording, match="not JSON"):
        parse_file("")


def test_code_that_breaks_where_the_run_waits_is_a_difference() -> None:
    waits = on_file(Harness(desk, {"what": "question"}))[0]

    async def fails(case: Any, ctx: Context) -> Any:
        await ctx.call(look_up, Order(order_id="A-1"))
        raise RuntimeError("new bug")

    fails.__name__ = "begin"
    broken = agent_of(
        fails,
        name="returns",
        version="1.0.1",
        state=desk.state,
        input=desk.input,
        initial=desk.initial,
        tools=[look_up],
    )
    assert "the run waits for input at 0.1/2; the code: fails with node_error: RuntimeError: new bug" in difference(
        waits, broken
    )
    skipping = replace(recorded()[0], events=recorded()[0].events[:-1])
    assert "at 0.1/2 the record says: refund(" in difference(skipping, changed(breaks))
