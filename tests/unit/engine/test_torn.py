from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from durableagents import Assistant, Context, End, ToolCall
from ledger import events as e
from ledger.errors import StaleLease
from runs.engine.errors import JournalBroken
from runs.engine.journal import Batch, Reply
from runs.engine.memory import MemoryJournal
from runs.engine.outcomes import LateAnswer
from runs.engine.runtime import Runtime
from tests.unit.engine.gathers import Meeting, gathering
from tests.unit.engine.story import Story
from tests.world import Item, Notes, Outside, Toolbox, agent_of


class Unanswered(MemoryJournal):
    """Writes an intent, and is late to confirm it."""

    async def commit(self, batch: Batch) -> Reply:
        reply = await super().commit(batch)
        if batch.is_intent:
            await asyncio.Event().wait()
        return reply


class Unwritten(MemoryJournal):
    async def commit(self, batch: Batch) -> Reply:
        if batch.is_intent:
            await asyncio.Event().wait()
        return await super().commit(batch)


@dataclass
class Heard(Story):
    late: list[LateAnswer] = field(default_factory=list)

    @property
    def runtime(self) -> Runtime:
        return replace(super().runtime, record_late=self.late.append)


@pytest.mark.parametrize("journal", [Unanswered, Unwritten])
@pytest.mark.parametrize("what", ["call", "think"])
async def test_what_was_read_before_a_call_that_the_node_cuts_short_is_written_once(
    tools: Toolbox, outside: Outside, journal: type[MemoryJournal], what: str
) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.random()
        try:
            async with asyncio.timeout(0.05):
                await (ctx.call(tools.order, Item(name="a")) if what == "call" else ctx.think(helper, "think"))
        except TimeoutError:
            pass
        return End("as if nothing had happened")

    helper = Assistant("helper", "Help.", Item)
    story = Story(agent_of(node, tools=tools.all(), assistants=[helper]), journal=journal)
    assert await story.drive() == "failed"
    assert story.failure.code == "cut_call", story.failure.payload
    # Before a thought's first intent the choice of its models is written, together with earlier reads.
    is_written = journal is Unanswered or what == "think"
    assert outside.requests == [] and len(story.events(e.ValueRead)) == is_written


async def test_branch_hands_in_its_answer_when_a_write_is_cut_off(tools: Toolbox, outside: Outside) -> None:
    """It can't be written behind a write with an unknown outcome; and nobody should be asked about it."""
    cut = asyncio.Event()

    async def hold(call: ToolCall) -> None:
        await cut.wait()

    outside.trouble("mail", hold, when="after")

    class Slow(MemoryJournal):
        async def commit(self, batch: Batch) -> Reply:
            reply = await super().commit(batch)
            if any(isinstance(x, e.ToolInvoked) and x.tool == "order" for x in batch.events):
                await asyncio.Event().wait()
            return reply

    async def impatient(ctx: Context) -> None:
        try:
            async with asyncio.timeout(0.1):
                await ctx.call(tools.order, Item(name="o"))
        finally:
            cut.set()

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.call(tools.mail, Item(name="m")), impatient(ctx), return_exceptions=True)

    story = Heard(gathering(tools, body), journal=Slow)
    assert await story.drive() == "failed" and story.failure.code == "cut_call"
    assert [(x.tool, x.slot, x.result["ref"]) for x in story.late] == [("mail", "0.1/1/0/1", "mail:m")]
    assert "ToolReturned" not in story.kinds()


@pytest.mark.parametrize(("name", "handed_in"), [("mail", 1), ("order", 0)])
async def test_an_answer_cut_off_before_it_was_written_is_handed_in(
    tools: Toolbox, outside: Outside, name: str, handed_in: int
) -> None:
    """The node stops waiting while another branch writes. A keyed call is simply sent again."""
    writing, let_go = asyncio.Event(), asyncio.Event()

    async def answer(call: ToolCall) -> None:
        await writing.wait()

    outside.trouble(name, answer, when="after")

    class Slow(MemoryJournal):
        async def commit(self, batch: Batch) -> Reply:
            if any(isinstance(x, e.ToolRead) for x in batch.events):
                writing.set()
                await let_go.wait()
            return await super().commit(batch)

    async def body(ctx: Context) -> Any:
        try:
            async with asyncio.timeout(0.1):
                await ctx.gather(ctx.call(getattr(tools, name), Item(name="m")), ctx.call(tools.look, Item(name="l")))
        finally:
            let_go.set()

    story = Heard(gathering(tools, body), journal=Slow)
    assert await story.drive() == "failed" and story.failure.code == "cut_call"
    assert [x.result["ref"] for x in story.late] == [f"{name}:m"] * handed_in


async def test_whatever_else_goes_wrong_a_lost_run_is_noticed_by_every_branch(tools: Toolbox, outside: Outside) -> None:
    """One branch finds the journal broken, then another finds the run taken over and hands its answer in."""
    broke, met = asyncio.Event(), Meeting(2)

    async def first(call: ToolCall) -> None:
        await met.come(call)

    async def second(call: ToolCall) -> None:
        await met.come(call)
        await broke.wait()
        story.run.claim()

    class Breaking(MemoryJournal):
        async def commit(self, batch: Batch) -> Reply:
            if any(isinstance(x, e.ToolReturned) and x.tool == "order" for x in batch.events):
                broke.set()
                raise JournalBroken("it can't be trusted")
            return await super().commit(batch)

    outside.trouble("order", first, when="after")
    outside.trouble("mail", second, when="after")

    async def body(ctx: Context) -> Any:
        await ctx.gather(ctx.call(tools.order, Item(name="o")), ctx.call(tools.mail, Item(name="m")))

    story = Heard(gathering(tools, body), journal=Breaking)
    with pytest.raises(StaleLease):
        await asyncio.wait_for(story.drive(), 20)
    assert [x.tool for x in story.late] == ["mail"]
