"""Whatever is missing of one run, or was doubled, the others are driven on, and verification says so."""

from __future__ import annotations

import pytest

from durableagents import Context, End
from ledger.verification.runs import tables, verify
from runs.models import Run
from runs.workers import failover
from tests.runs.stage import Stage, fresh
from tests.runs.stories import as_superuser
from tests.world import Item, Notes, Outside, Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db


def test_a_run_without_its_head_whose_worker_died_is_shown_to_people(stage: Stage) -> None:
    """Nobody holds its row, for there is none: it was taken up again every few seconds, and said nowhere."""
    run, worker = stage.start(agent_of(ends_with(1))), stage.hire(is_dead=True)
    stage.claim(worker)
    as_superuser("DELETE FROM ledger_head WHERE run_id = %s", run.id)
    for _ in range(failover.MOST_FAILURES):
        assert failover.worker_died(worker.id, "reaped") == 0
    assert (str(fresh(run).state), fresh(run).owner) == ("waiting_human", None)
    assert verify(run.id).problems


@pytest.mark.parametrize("table", tables)
def test_a_run_that_lost_a_tables_rows_sends_nothing_twice_and_holds_nobody_up(
    stage: Stage, tools: Toolbox, outside: Outside, table: str
) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name=state.asked.text))
        return End((await ctx.call(tools.pay, Item(name=state.asked.text, amount=5000))).ref)

    agent = agent_of(node, tools=tools.all())
    damaged, sound = stage.start(agent, text="damaged"), stage.start(agent, text="sound")
    assert [stage.drive(), stage.drive()] == ["parked", "parked"]
    gone = as_superuser(f"DELETE FROM {table} WHERE {tables[table]} = %s", damaged.id)
    Run.objects.filter(pk=damaged.id).update(state="running", ready_at=damaged.created_at)
    stage.decide(sound)
    for _ in range(3):
        try:
            stage.drive()
        except Exception:  # what a worker's host does with a run whose driving fails: the next one's turn
            Run.objects.filter(pk=damaged.id).update(ready_at=None)
    assert fresh(sound).state == "completed" and verify(sound.id).problems == []
    assert (verify(damaged.id).problems != []) == (gone > 0), "of signals, incidents and overrides this run has none"
    assert len(outside.executed("order")) == 2 and len(outside.executed("pay")) == 1
