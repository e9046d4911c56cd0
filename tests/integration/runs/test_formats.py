from __future__ import annotations

import pytest

from durableagents import Context, End
from ledger import events as e
from runs.engine.migration import Formats
from runs.journal import reader
from runs.models import Run
from runs.services import signals
from tests.integration.runs.stage import Stage, events, output
from tests.tampering import tamper
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of


def waiting_run(stage: Stage, tools: Toolbox) -> Run:
    async def only(notes: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        return End([notes.seen, (await ctx.call(tools.order, Item(name="desk"))).ref])

    run = stage.start(agent_of(only, tools=tools.all()))
    assert stage.drive() == "parked"
    return run


def is_of_format(number: int) -> None:
    tamper("UPDATE runs_checkpoint SET schema_version = %s", number)


@pytest.mark.parametrize("number", [2, 0, -1, 32767])
def test_a_format_that_nobody_here_reads_stops_its_run_by_name(stage: Stage, number: int) -> None:
    tools = Toolbox(Outside())
    run = waiting_run(stage, tools)
    signals.signal(run.id, "go", None, by=OLGA)
    is_of_format(number)
    assert stage.drive() == "operator" and tools.outside.requests == []
    (found,) = (event for event in events(run) if isinstance(event, e.OperatorNeeded))
    assert found.reason == "unknown_format" and f"is of format {number}" in found.payload["problem"]


def test_an_older_format_is_brought_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Toolbox(Outside())
    run = waiting_run(stage, tools)
    signals.signal(run.id, "go", None, by=OLGA)
    steps = {1: lambda state: state | {"seen": [*state["seen"], "brought up"]}}
    monkeypatch.setattr(reader, "STATES", Formats("checkpoint", 2, steps))
    assert stage.drive() == "completed"
    assert output(run) == [["brought up"], "order:desk"]
