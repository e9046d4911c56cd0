"""The cancel form previews what would be undone and asks; a run that undoes says so."""

from __future__ import annotations

import pytest

from durableagents import Context, End
from ledger import events as e
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage, events, fresh
from tests.unit.engine.undoings import Reversible, failing
from tests.world import Notes, Outside, agent_of

pytestmark = pytest.mark.django_db


def test_the_cancel_form_shows_it_and_wants_a_choice(stage: Stage, outside: Outside, olga: Reader) -> None:
    tools = Reversible(outside)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "<b>a</b>"})
        await ctx.call(tools.order, {"name": "b"})
        await ctx.signal("go")
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    page = olga.get(f"/runs/{run.id}").content.decode()
    assert 'name="effects" value="undo"' in page and "<b>a</b>" not in page
    text = olga.read(f"/runs/{run.id}")
    assert "order order:b stays: no undo is declared for it" in text
    assert "undone by unbook" in text
    refused = olga.post(f"/runs/{run.id}/cancellations", justification="no more")
    assert refused.status_code == 422 and "can be undone" in refused.content.decode()
    assert fresh(run).state == "waiting_event" and "no more" in refused.content.decode()
    olga.post(f"/runs/{run.id}/cancellations", justification="no more", effects="undo")
    assert stage.settle(run) == "cancelled" and len(events(run, e.EffectUndone)) == 1
    assert "can be undone by unbook" in olga.read(f"/runs/{run.id}?tab=journal")


def test_a_run_that_undoes_says_so_and_is_not_cancelled_again(stage: Stage, outside: Outside, olga: Reader) -> None:
    tools = Reversible(outside)
    run = stage.start(failing(tools, [["buy", "book"]]))
    stage.settle(run)
    for tab in ("timeline", "journal", "checkpoints", "transcript", "decisions"):
        assert olga.get(f"/runs/{run.id}?tab={tab}").status_code == 200
    refused = olga.post(f"/runs/{run.id}/cancellations", justification="no more", effects="leave")
    assert refused.status_code == 409 and "is undoing its effects" in refused.content.decode()
    stage.decide(run)
    assert "undoing" in olga.read(f"/runs/{run.id}")
    assert stage.settle(run) == "failed"
    assert olga.get(f"/runs/{run.id}").status_code == 200


def test_where_there_is_nothing_to_undo_nobody_is_asked(stage: Stage, outside: Outside, olga: Reader) -> None:
    tools = Reversible(outside)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, {"name": "b"})
        await ctx.signal("go")
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.settle(run)
    assert 'name="effects"' not in olga.get(f"/runs/{run.id}").content.decode()
    olga.post(f"/runs/{run.id}/cancellations", justification="no more")
    assert fresh(run).state == "cancelled"
