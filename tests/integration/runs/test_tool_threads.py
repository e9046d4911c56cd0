"""Hanging blocking calls cost other tools' runs neither a thread nor a worker's slot."""

from __future__ import annotations

import threading

from durableagents import Context, End, ReplayClass, ToolCall, tool
from runs.engine.threads import THREADS_PER_TOOL
from runs.models import Run
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage
from tests.waiting import eventually
from tests.world import Done, Item, Notes, agent_of

HUNG, HEALTHY = 80, 10  # more runs hang than there were threads for all tools


def test_runs_of_another_tool_complete_while_calls_of_one_hang(stage: Stage) -> None:
    let_go, began = threading.Event(), list[str]()

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=0.3)
    def stuck(args: Item, call: ToolCall) -> Done:
        began.append(call.run_id)
        let_go.wait(60)
        return Done(ref=args.name)

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=5)
    def fax(args: Item, call: ToolCall) -> Done:
        return Done(ref=args.name)

    async def hangs(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(stuck, Item(name="a"))).ref)

    async def faxes(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(fax, Item(name="a"))).ref)

    hanging, healthy = agent_of(hangs, name="hanging", tools=[stuck]), agent_of(faxes, name="healthy", tools=[fax])
    for _ in range(HUNG):
        stage.start(hanging)
    try:
        with working(stage):
            eventually(
                lambda: len(began) >= THREADS_PER_TOOL, what="the calls that hang holding all threads", seconds=60
            )
            for _ in range(HEALTHY):
                stage.start(healthy)
            done = Run.objects.filter(agent="healthy", state="completed")
            eventually(lambda: done.count() == HEALTHY, what="the healthy runs", seconds=30)
    finally:
        let_go.set()
