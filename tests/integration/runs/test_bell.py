"""Wake-ups are sent for committed changes only."""

from __future__ import annotations

from durableagents import Context, End
from runs.engine.agents import registry
from runs.engine.driver import Driver
from runs.engine.runtime import Control
from runs.journal.postgres import PgJournal
from tests.integration.runs.stage import Stage, head, in_thread
from tests.world import Item, Notes, Toolbox, agent_of


def test_a_wake_up_finds_its_run(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="sky"))
        return End((await ctx.call(tools.order, Item(name="desk"))).ref)

    run = stage.start(agent_of(node, tools=tools.all()))
    (claimed,) = stage.claim()
    rung: list[tuple[int, int]] = []

    def ring(run_id: str, seq: int) -> None:
        rung.append((seq, in_thread(lambda: head(run).seq)))

    journal = PgJournal(stage.wait(stage.connected()), stage.worker, claimed, on_write=ring)
    driver = Driver(registry.find(claimed.graph_id), journal, stage.runtime, Control(), trace_id=claimed.trace_id)

    assert stage.wait(driver.drive()) == "completed"
    assert len(rung) >= 4
    assert [(seq, durable) for seq, durable in rung if durable < seq] == []
