"""How much of our code one call runs: few functions in few files, so that the protocol can be read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from durableagents import Context, End, ReplayClass, ToolCall, tool
from tests.conftest import CHECKOUT
from tests.unit.engine.story import Story
from tests.world import Done, Item, Notes, agent_of

OURS = tuple(f"{CHECKOUT}/{app}/" for app in ("durableagents", "approvals", "runs", "ledger"))


@contextmanager
def noted() -> Iterator[set[tuple[str, str]]]:
    """Yield the functions of ours that run inside, as (file, name)."""
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            seen.add((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


async def test_a_plain_keyed_call_runs_few_functions() -> None:
    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="outside", effect="orders something")
    async def order(args: Item, call: ToolCall) -> Done:
        return Done(ref=args.name)

    found: list[set[tuple[str, str]]] = []

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(order, Item(name="the first one fills what is kept"))
        with noted() as seen:
            await ctx.call(order, Item(name="a"))
        found.append(seen)
        return End("done")

    story = Story(agent_of(node, tools=[order]))
    assert await story.drive() == "completed" and story.facts() == ["pending", "committed"] * 2
    (functions,) = found
    assert len(functions) <= 70 and len({file for file, _ in functions}) <= 12, sorted(functions)
