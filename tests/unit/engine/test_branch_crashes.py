from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from durableagents import Context, End
from ledger import events as e
from runs.engine.agents import Agent
from runs.engine.content.reads import MemoryReads
from runs.engine.memory import MemoryWait
from runs.engine.tools import Tool
from tests.cases import each_case
from tests.tiers import many
from tests.unit.engine.mortal import Death, die_as_scheduled
from tests.unit.engine.screened import MEANWHILE, glancing, guard
from tests.unit.engine.story import Story
from tests.unit.engine.test_crashes import OPS, Fickle, Op, check_the_record, deaths, end_child, mind, name_in, perform
from tests.world import AT_ONCE, IN_PLACE, Item, Notes, Toolbox, agent_of, ends_with, only_for_now

# A program: what one visit does, in order. A tuple is a gather of programs.
Program = Sequence["Op | tuple[Program, ...]"]


class Slow(Fickle):
    """Answers this many turns of the event loop later, before and after the effect."""

    def __init__(self, delays: Sequence[int]) -> None:
        super().__init__()
        self.delays: Iterator[int] = cycle(delays or [0])

    async def take_async(self, name: str, args: Item, call: Any) -> Any:
        for _ in range(next(self.delays)):
            await asyncio.sleep(0)
        answer = await super().take_async(name, args, call)
        for _ in range(next(self.delays)):
            await asyncio.sleep(0)
        return answer


def agent_for(program: Program, tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        return End(await perform_all(ctx, tools, glance, program, "p"))

    agent_of(ends_with({}), name="helper")
    glance = glancing(tools.outside)
    agent = agent_of(node, tools=[*tools.all(), glance], assistants=[mind(tools)])
    agent._fingerprint = "made up"
    return agent


async def perform_all(ctx: Context, tools: Toolbox, glance: Tool, program: Program, name: str) -> list[Any]:
    got: list[Any] = []
    for i, step in enumerate(program):
        if isinstance(step, tuple):
            named = ((f"{name}.{i}{chr(97 + b)}", branch) for b, branch in enumerate(step))
            branches = (perform_all(ctx, tools, glance, branch, of) for of, branch in named)
            got.append(await ctx.gather(*branches))
        else:
            got.append(await perform(ctx, tools, glance, step, f"{name}.{i}"))
    return got


async def tell(
    program: Program,
    deaths: Sequence[Death] = (),
    delays: Sequence[int] = (),
    picks: Sequence[int] = (),
    in_place: bool = True,
) -> tuple[Story, Slow]:
    """Drive a program to its end. `picks` choose the open waits that are answered each time the run parks."""
    outside, choose = Slow(delays), cycle(picks or [-1])
    retry = IN_PLACE if in_place else AT_ONCE
    agent = agent_for(program, Toolbox(outside))
    story = Story(agent, retry=retry, screens=(guard,), reads=MemoryReads())
    die_as_scheduled(story, [Death(d.nth, d.when) for d in deaths])
    for _ in range(1000):
        if story.run.state in ("completed", "failed", "cancelled") and story.run.lease is None:
            return story, outside
        assert await story.drive() != "operator", story.found
        story.run.skew += MEANWHILE
        assert not any(task.get_coro().__name__ == "_run" for task in asyncio.all_tasks()), (
            "no branch outlives the drive"
        )  # type: ignore[union-attr]
        waiting = [(i, w) for i, w in story.run.waits.items() if w.resolution is None]
        pick = next(choose)
        for wait_id, wait in waiting if pick < 0 else [waiting[pick % len(waiting)]] if waiting else []:
            answer(story, outside, wait_id, wait)
    raise AssertionError("it never ends")


def answer(story: Story, outside: Fickle, wait_id: UUID, wait: MemoryWait) -> None:
    """Answer one wait: timer, signal, input, approval by its place, callback, or operator."""
    s = wait.spec
    match s.kind:
        case "timer":
            story.run.resolve(wait_id, "fired")
        case "signal":
            story.run.signal(s.detail["name"], s.detail["name"])
        case "input":
            story.run.answer({"name": s.detail["title"]}, slot=s.slot)
        case "approval":
            story.decide("rejected" if s.slot.endswith("3") else "approved", "because", slot=s.slot)
        case "child":
            end_child(story, s.detail["child"])
        case "webhook" if any(r.slot == s.slot for r in outside.requests):
            story.call_back({"ref": f"called back {s.slot}"}, slot=s.slot)
        case "reconcile":
            sent = [r for r in outside.requests if (r.slot, r.attempt) == (s.slot, s.attempt)]
            ref = f"{s.detail['tool']}:{name_in(sent[0].body)}" if sent else ""
            story.reconcile("happened" if sent else "did_not", receipt={"ref": ref} if sent else None, slot=s.slot)
        case _:
            pass


def stable(program: Program, output: Sequence[Any]) -> list[Any]:
    return [
        [stable(branch, value) for branch, value in zip(step, values, strict=True)]
        if isinstance(step, tuple)
        else (step if step in ("now", "random", "uuid") else values)
        for step, values in zip(program, output, strict=True)
    ]


READS = (e.ToolRead, e.CachedReadTaken, e.ToolReadAnew)


def places(story: Story) -> set[tuple[str, str]]:
    found = (x for x in story.run.events if isinstance(x, (e.ToolInvoked, *READS, e.ToolFailed, e.BranchesOpened)))
    return {(str(x.slot), getattr(x, "tool", "gather")) for x in found}


steps: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([op for op in OPS if op != "message"]),
    lambda inner: st.lists(st.lists(inner, max_size=3), min_size=1, max_size=3).map(tuple),
    max_leaves=8,
)
programs = st.lists(steps, min_size=1, max_size=3)
delays = st.lists(st.integers(0, 12), max_size=8)
picks = st.lists(st.integers(-1, 5), max_size=8)


@settings(max_examples=many(200, 25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, deaths=deaths, delays=delays, picks=picks, in_place=st.booleans())
def test_a_run_ends_the_same_in_whatever_order_things_happen(
    program: Any, deaths: list[Death], delays: list[int], picks: list[int], in_place: bool
) -> None:
    with only_for_now():
        calm, calm_outside = asyncio.run(tell(program))
        story, outside = asyncio.run(tell(program, deaths, delays, picks, in_place))
    event(f"{len(story.events(e.RunParked))} parks")
    assert story.run.state == calm.run.state == "completed"
    assert stable(program, story.output) == stable(program, calm.output)
    assert sorted(outside.executed()) == sorted(calm_outside.executed()), "each effect exactly once"
    assert places(story) == places(calm), "and each in its own place"
    check_the_record(story, outside)


EVERYTHING: Any = [
    "order",
    (
        ["look", "now", "mail"],
        ["wire", "sleep", "form"],
        ["pay", (["ask"], ["hooked", "random", "signal"])],
        ["refused", "away"],
    ),
    "mail",
]


@pytest.mark.long
@each_case("when", ["before", "after", "call"])
@each_case("nth", range(1, 34))
async def test_a_gather_survives_a_death_at_every_single_point(nth: int, when: Any) -> None:
    calm, calm_outside = await tell(EVERYTHING, delays=[0, 3, 1])
    story, outside = await tell(EVERYTHING, [Death(nth, when)], delays=[3, 0, 5], picks=[1, 0, 2], in_place=False)
    assert stable(EVERYTHING, story.output) == stable(EVERYTHING, calm.output)
    assert sorted(outside.executed()) == sorted(calm_outside.executed())
    assert places(story) == places(calm)
    check_the_record(story, outside)
