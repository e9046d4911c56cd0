"""The page of a run with effects to undo costs what it shows, not the run's length; a cancel never uses its cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableagents import Context, End
from ledger import events as e
from ledger.append import append
from ledger.errors import InvalidInput
from runs.models import Run
from runs.services import lifecycle, undo
from tests.integration.api.conftest import person
from tests.integration.console.conftest import Reader
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage  # noqa: F401 (fixtures)
from tests.integration.runs.stage import Stage
from tests.integration.scale.journals import HANDS, lived
from tests.integration.scale.test_page import LONG, MAX_READ, scanned
from tests.unit.engine.undoings import Reversible
from tests.world import OLGA, Notes, Outside, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    undo.forget_all()
    yield
    undo.forget_all()


@pytest.fixture
def olga(stage: Stage) -> Reader:
    return Reader(person("olga", "operator"))


@pytest.fixture
def run(stage: Stage, outside: Outside) -> Run:
    tools = Reversible(outside)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})
        await ctx.signal("go")
        return End()

    run = stage.start(agent_of(node, tools=tools.all(), name="undoing-at-length"))
    stage.settle(run)
    return run


def more(run: Run, slot: str) -> None:
    append(
        run.pk,
        e.ToolInvoked(
            slot=slot,
            tool="book",
            replay_class="idempotent_with_key",
            requested_hash="h",
            executed_hash="h",
            payload={"arguments": {"name": slot, "amount": 1}, "key": "k"},
        ),
        e.UndoRegistered(slot=slot, undo="book:unbook", tool="unbook"),
        e.ToolReturned(slot=slot, tool="book", external_id=f"book:{slot}", payload={"result": {"ref": f"book:{slot}"}}),
        by=HANDS,
    )


@pytest.mark.timeout(300)
def test_a_live_refresh_of_a_run_with_undos_reads_what_is_new_and_what_is_shown(run: Run, olga: Reader) -> None:
    lived(run.pk, LONG)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_event")
    assert "undone by" in olga.read(f"/runs/{run.id}")
    append(run.pk, e.ValueRead(slot="new/1", what="now", payload="x"), by=HANDS)
    with CaptureQueriesContext(connection) as found:
        assert olga.get(f"/runs/{run.id}", fragment="live").status_code == 200
    items = [
        query["sql"]
        for query in found.captured_queries
        if "ledger_event" in query["sql"] and not query["sql"].startswith("EXPLAIN")
    ]
    assert sum(map(scanned, items)) <= MAX_READ
    assert len(found) <= 14


def test_what_is_new_is_shown_and_a_cancel_goes_by_the_journal(run: Run, olga: Reader) -> None:
    def offers() -> int:
        return olga.read(f"/runs/{run.id}").count("undone by unbook")

    assert offers() == 1
    undo._keep(run.pk, undo.replace(undo._kept[run.pk], until=0.0))
    more(run, "9.1/1")
    assert offers() == 2
    undo._keep(run.pk, undo.replace(undo._kept[run.pk], until=float("inf")))
    more(run, "9.1/2")
    assert offers() == 2, "it was read a moment ago"
    with pytest.raises(InvalidInput, match="3 effects"):
        lifecycle.cancel(run.pk, by=OLGA, justification="no more")


def test_what_is_kept_has_an_end(run: Run, olga: Reader) -> None:
    for n in range(undo.MAX_KEPT + 5):
        undo._keep(run.pk.__class__(int=n), undo._CachedPreview(frozenset(), 1, 0.0, None))
    olga.read(f"/runs/{run.id}")
    assert len(undo._kept) == undo.MAX_KEPT and run.pk in undo._kept
