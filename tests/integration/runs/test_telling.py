from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from durableagents import Context, End
from ledger.actors import Lease
from ledger.models import Event, Head
from ledger.verification.runs import verify
from runs.engine.steps.telling import MAX_LINE_LENGTH, ProgressMessage
from runs.journal.telling import MAX_LINES
from runs.models import LogLine, Run, Telling
from runs.services import signals
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, fresh
from tests.world import OLGA, Item, Notes, Toolbox, agent_of


def lines(run: Run) -> list[str]:
    return [line.text for line in LogLine.objects.filter(run_id=run.id).order_by("id")]


def told(run: Run) -> Telling:
    return Telling.objects.get(run_id=run.id)


def test_what_a_node_says_is_kept_once_whatever_replays(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        ctx.log("begins", customer="ACME")
        ctx.progress(1, 4, "first")
        await ctx.call(tools.order, Item(name="desk"))
        ctx.log("ordered", level="warning")
        ctx.progress(2, 4, "second")
        await ctx.sleep(0)
        ctx.log("done")
        ctx.progress(4, 4)
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.kill_at = [("CP2", "order"), ("CP6", "order")]
    stage.settle(run)
    stage.send_told()
    assert str(fresh(run).state) == "completed" and stage.kill_at == []
    assert lines(run) == ["begins customer=ACME", "ordered", "done"]
    assert list(LogLine.objects.filter(run_id=run.id).order_by("id").values_list("level", flat=True)) == [
        "info",
        "warning",
        "info",
    ]
    row = told(run)
    assert (row.lines, row.lost, row.done, row.total, row.note) == (3, 0, 4, 4, "")
    check_against_journal(run)
    assert not Event.objects.filter(run_id=run.id, clear__contains=b"begins").exists()


def test_a_replay_after_its_lines_came_adds_none_and_moves_no_progress_back(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for n in range(3):
            ctx.log(f"line {n}")
            ctx.progress(n, 3)
            await ctx.signal(f"go-{n}")
        return End()

    run = stage.start(agent_of(node))
    for n in range(3):
        assert stage.drive() == "parked"
        stage.send_told()
        assert lines(run) == [f"line {k}" for k in range(n + 1)] and told(run).done == n
        signals.signal(run.id, f"go-{n}", by=OLGA)
    assert stage.drive() == "completed"
    stage.send_told()
    assert len(lines(run)) == 3 and told(run).done == 2 and told(run).lost == 0


def test_the_newest_stay_and_the_others_are_counted(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for n in range(MAX_LINES - 10):
            ctx.log(f"a {n}")
        await ctx.signal("go")
        for n in range(MAX_LINES + 30):  # more than the buffer holds: the last thirty are dropped here
            ctx.log(f"b {n} {'x' * 5000}")
        return End()

    run = stage.start(agent_of(node))
    assert stage.drive() == "parked"
    stage.send_told()
    assert told(run).lines == MAX_LINES - 10
    signals.signal(run.id, "go", by=OLGA)
    assert stage.drive() == "completed"
    stage.send_told()
    kept = lines(run)
    assert len(kept) == told(run).lines == MAX_LINES and max(map(len, kept)) == MAX_LINE_LENGTH
    assert told(run).lost == MAX_LINES + 20 and kept[-1].startswith(f"b {MAX_LINES + 29} ")


async def quiet_one(state: Notes, ctx: Context) -> End:
    return End()


def _line(n: int, text: str = "") -> ProgressMessage:
    return ProgressMessage("0.1/", n, datetime.now(UTC), text or f"line {n}", "info")


def test_a_worker_that_has_lost_the_run_adds_nothing(stage: Stage) -> None:
    run = stage.start(agent_of(quiet_one))
    stale = stage.take(run).lease
    Head.objects.filter(run_id=run.id).update(epoch=stale.epoch + 1)
    for lease in (stale, Lease(stale.epoch + 1, uuid4())):
        stage.teller.keep(str(run.id), lease, _line(0))
    stage.send_told()
    assert not LogLine.objects.exists() and not Telling.objects.exists()


def test_hostile_and_huge_text_is_text(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        ctx.log("a\x00b\ud800 \u202e\n<script>", level="error", name="'); DROP TABLE runs_run; --")
        ctx.progress(1, None, "x" * 9999)
        for wrong in ("loud", ""):
            with pytest.raises(ValueError, match="none of debug"):
                ctx.log("x", level=wrong)
        for done, of in ((-1, None), (2, 1), (float("nan"), 1), (0, 0), (1, float("inf")), (True, 1), ("1", 2)):
            with pytest.raises(ValueError, match="progress"):
                ctx.progress(done, of)  # type: ignore[arg-type]
        return End()

    run = stage.start(agent_of(node))
    assert stage.drive() == "completed"
    stage.send_told()
    assert lines(run) == ["a\\x00b\\ud800 \u202e\n<script> name='); DROP TABLE runs_run; --"]
    assert len(told(run).note) == MAX_LINE_LENGTH and verify(run.id).problems == []
    (logged,) = [record for record in caplog.records if "DROP TABLE" in record.getMessage()]
    assert logged.levelname == "ERROR" and logged.getMessage().isprintable()
