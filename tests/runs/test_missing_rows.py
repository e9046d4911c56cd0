"""Whatever is missing of one run, or was doubled, the others are driven on, and verification says so."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from durableagents import Context, End
from ledger.verification.runs import tables, verify
from runs.models import Run
from tests.runs.stage import Stage, fresh
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def as_superuser(statement: str, *parameters: Any) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement, parameters)
        gone: int = cursor.rowcount
        return gone


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
