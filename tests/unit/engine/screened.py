"""Steps with hooks and a cache, for the crash tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from durableagents import ContentRefused, Context, Piece, Redact, ReplayClass, ToolCall, Withhold, screen, tool
from ledger import events as e
from runs.engine.tools import Tool
from tests.unit.engine.story import Story
from tests.world import Done, Item, Outside, Toolbox

ScreenedOp = Literal["kept", "cleaned", "cached", "doubtful", "stale"]
SCREENED: tuple[ScreenedOp, ...] = ("kept", "cleaned", "cached", "doubtful", "stale")
# Between two drives the clock advances by more than a read's maximum age.
MEANWHILE, MAX_AGE = timedelta(minutes=2), timedelta(minutes=1)


@screen(version="1")
def guard(piece: Piece) -> Withhold | Redact | None:
    """Refuses what is called so, and has what is called so replaced."""
    text = str(piece.content)
    if "kept" in text:
        return Withhold("kept back")
    if piece.to == "tool" and "cleaned" in text:
        return Redact(piece.content | {"name": piece.content["name"].replace("cleaned", "clean")}, "cleaned")
    return None


def glancing(outside: Outside) -> Tool:
    """A read that others may have."""

    @tool(replay_class=ReplayClass.PURE, cache=timedelta(hours=1), timeout=5)
    async def glance(args: Item, call: ToolCall) -> Done:
        return await outside.take_async("look", args, call)

    return glance


async def perform_screened(ctx: Context, tools: Toolbox, glance: Tool, op: ScreenedOp, name: str) -> Any:
    try:
        match op:
            case "kept" | "cleaned":
                return (await ctx.call(tools.order, Item(name=f"{op} {name}"))).ref
            case "cached":
                return (await ctx.call(glance, Item(name="always the same"))).ref
            case "stale":
                return (await ctx.call(tools.look, Item(name=name), max_age=MAX_AGE)).ref
            case "doubtful":
                return await ctx.signal(f"kept.{name}")
    except ContentRefused as no:
        return no.reason


def check_verdicts(story: Story) -> None:
    """Assert that each look has its verdicts once, and that nothing refused or unredacted was sent."""
    events, kept = story.events(e.ContentScreened), story.events(e.ContentWithheld)
    assert len({(x.slot, x.attempt, x.n) for x in events}) == len(events)
    assert len(kept) == sum(x.refused + x.replaced for x in events)
    refused = {(x.slot, x.attempt) for x in kept if x.verdict == "refused"}
    replaced = {(x.slot, x.attempt) for x in kept if x.verdict == "replaced"}
    reads = story.events(e.ToolRead) + story.events(e.CachedReadTaken)
    assert not refused & {(x.slot, x.attempt) for x in (*story.events(e.ToolInvoked), *reads)}
    for intent in story.events(e.ToolInvoked):
        was_replaced = (intent.slot, intent.attempt) in replaced
        assert was_replaced == (intent.executed_hash != intent.requested_hash)
        assert "cleaned" not in intent.payload["arguments"]["name"]
