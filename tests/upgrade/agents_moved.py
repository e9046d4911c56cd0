"""The version that runs of `agents.py` are moved to after an upgrade: the same calls in nodes of other names, and an
end that says which version came to it."""

from __future__ import annotations

from durableagents import Agent, Context, End, Migration, Sample
from tests.upgrade import agents
from tests.upgrade.agents import Item, Notes, Wish, ask, look, mail, mind, order, pay

NODES = {"begin": "opening", "middle": "heart", "last": "closing"}
twin = Agent(
    agents.agent.name, "2.0.0", input=Wish, state=Notes, initial=lambda wish: Notes(what=wish.what),
    tools=[look, order, mail, pay, ask], assistants=[mind], samples=[Sample(label="as it is", input={})],
    migrations=[Migration(agents.agent.version, NODES)],
)  # fmt: skip


@twin.node(start=True, to=["heart"])
async def opening(notes: Notes, ctx: Context) -> str:
    notes.seen.append((await ctx.call(look, Item(name="catalogue"))).ref)
    notes.seen.append((await ctx.call(order, Item(name=f"first {notes.what}"))).ref)
    return "heart"


@twin.node(to=["closing"])
async def heart(notes: Notes, ctx: Context) -> str:
    await ctx.now()
    notes.seen.append(str(await ctx.uuid()))
    await ctx.call(order, Item(name=f"before {notes.what}"))
    notes.seen.append(await agents._wished(notes.what, ctx))
    return "closing"


@twin.node()
async def closing(notes: Notes, ctx: Context) -> End:
    await ctx.call(order, Item(name=f"last {notes.what}"))
    return End({"what": notes.what, "seen": notes.seen, "version": "2.0.0"})


twin.validate()
