"""Count the functions and files that one call runs: few, so that the protocol can be read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from durableagents import Context, End, Gate, ReplayClass, ToolCall, tool
from ledger import events as e
from runs.engine.tools import Tool
from tests.conftest import CHECKOUT
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, agent_of

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # no functions from Python 3.12 on
OURS = tuple(f"{CHECKOUT}/{app}/" for app in ("durableagents", "approvals", "runs", "ledger"))


@contextmanager
def noted() -> Iterator[set[tuple[str, str]]]:
    """Yield the functions of ours that run inside, as (file, name)."""
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS) and code.co_name not in COMPREHENSIONS:
            seen.add((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def within(seen: set[tuple[str, str]], functions: int, files: int) -> bool:
    return len(seen) <= functions and len({file for file, _ in seen}) <= files


def ordering(gate: Gate | None = None) -> Tool:
    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="outside", effect="orders something", gate=gate)
    async def order(args: Item, call: ToolCall) -> Done:
        return Done(ref=args.name)

    return order


async def test_a_plain_keyed_call_runs_few_functions() -> None:
    order, found = ordering(), []

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(order, Item(name="the first one fills what is kept"))
        with noted() as seen:
            await ctx.call(order, Item(name="a"))
        found.append(seen)
        return End("done")

    story = Story(agent_of(node, tools=[order]))
    assert await story.drive() == "completed" and story.facts() == ["pending", "committed"] * 2
    assert within(found[0], 70, 12), sorted(found[0])


async def test_a_gated_call_runs_few_functions_until_it_parks() -> None:
    gate = Gate(queue="finance_po", rule="large orders", when=lambda args: args.name != "small")
    order, found = ordering(gate), []

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(order, Item(name="small"))  # fills what is kept
        with noted() as seen:
            found.append(seen)
            await ctx.call(order, Item(name="large"))
        return End("done")

    story = Story(agent_of(node, tools=[order]))
    assert await story.drive() == "parked" and len(story.events(e.ApprovalRequested)) == 1
    assert within(found[0], 70, 12), sorted(found[0])


async def test_a_gated_call_runs_few_functions_after_the_approval() -> None:
    """The first branch fills what is kept in this visit; the second is measured."""
    order, found = ordering(Gate(queue="finance_po", rule="every order")), []

    async def node(state: Notes, ctx: Context) -> End:
        async def measured() -> None:
            with noted() as seen:
                found.append(seen)
                await ctx.call(order, Item(name="b"))

        await ctx.gather(ctx.call(order, Item(name="a")), measured())
        return End("done")

    story = Story(agent_of(node, tools=[order]))
    assert await story.drive() == "parked"
    story.decide()
    story.decide()
    assert await story.drive() == "completed" and story.facts() == ["pending", "committed"] * 2
    assert within(found[-1], 85, 14), sorted(found[-1])
