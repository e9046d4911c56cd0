"""Children that undo their effects: one fails at its end; another after its own child has completed."""

from __future__ import annotations

from durableagents import Agent, Context, End, Failure, ReplayClass, ToolCall, Undo, tool
from tests.system.crash.calls import GATE, Answer, Arguments, _create, _send, _sent


def _back(asked: Arguments, got: Answer) -> Arguments:
    return Arguments(n=asked.n + 50)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp")
async def unbooked(args: Arguments, call: ToolCall) -> Answer:
    """Undoes under a key."""
    return await _create(args, call)


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, system="email", reconcile=_sent)
def unmailed(args: Arguments, call: ToolCall) -> Answer:
    """Undoes by a mail that the mailbox can be searched for."""
    return _send(args, call)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp", gate=GATE, effect="Takes a vendor back.")
async def refunded(args: Arguments, call: ToolCall) -> Answer:
    """Undoes after a person's yes."""
    return await _create(args, call)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp", external_id="id", undo=Undo(unbooked, _back))
async def booked(args: Arguments, call: ToolCall) -> Answer:
    """An effect under a key."""
    return await _create(args, call)


@tool(replay_class=ReplayClass.UNSAFE_ON_REPLAY, system="email", reconcile=_sent, undo=Undo(unmailed, _back))
def mailed(args: Arguments, call: ToolCall) -> Answer:
    """An effect that nobody but the mailbox can tell from its repeat."""
    return _send(args, call)


@tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="erp", undo=Undo(refunded, _back))
async def bought(args: Arguments, call: ToolCall) -> Answer:
    """An effect that is undone after a person's yes."""
    return await _create(args, call)


undoer = Agent(
    "crash-undoer",
    "1.0.0",
    input=Arguments,
    state=Arguments,
    tools=[booked, mailed, bought, unbooked, unmailed, refunded],
)


@undoer.node(start=True, title="Fail")
async def fail(state: Arguments, ctx: Context) -> None:
    """Make the calls; the mail where it is asked for."""
    await ctx.call(booked, Arguments(n=state.n))
    if state.mark:
        await ctx.call(mailed, Arguments(n=state.n + 1))
    await ctx.call(bought, Arguments(n=state.n + 2))
    raise Failure("so that all of it is undone", code="undone")


giver = Agent(
    "crash-giver", "1.0.0", input=Arguments, state=Arguments, output=Answer, tools=[booked, bought, unbooked, refunded]
)


@giver.node(start=True, title="Give")
async def give(state: Arguments, ctx: Context) -> End:
    """Make the calls."""
    await ctx.call(booked, Arguments(n=state.n))
    return End(await ctx.call(bought, Arguments(n=state.n + 1)))


regretter = Agent("crash-regretter", "1.0.0", input=Arguments, state=Arguments, tools=[booked, unbooked])


@regretter.node(start=True, title="Regret")
async def regret(state: Arguments, ctx: Context) -> None:
    """Make a call, have the child make its own, and fail."""
    await ctx.call(booked, Arguments(n=state.n))
    await ctx.child(giver, Arguments(n=state.n + 10))
    raise Failure("so that all of it is undone", code="undone")
