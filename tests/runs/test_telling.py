"""What nodes say for people: kept once whatever replays, within bounds, beside the steps, and by whoever drives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from durableagents import Context, End
from ledger.actors import Lease
from ledger.models import Event, Head
from ledger.verification.runs import verify
from runs.engine.steps.telling import LONGEST, Told
from runs.journal.telling import MOST_LINES
from runs.models import LogLine, Run, Telling
from runs.queries import families
from runs.queries.progress import progress_of
from runs.services import signals
from tests.runs.fold import check_against_journal
from tests.runs.stage import Stage, fresh
from tests.world import OLGA, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


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


def test_branches_say_each_its_own(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        async def one(name: str) -> None:
            ctx.log(f"{name} begins")
            await ctx.call(tools.order, Item(name=name))
            ctx.log(f"{name} ends")

        await ctx.gather(one("a"), one("b"))
        return End()

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.kill_at = [("CP6", "order"), ("CP2", "order")]
    stage.settle(run)
    stage.send_told()
    assert sorted(lines(run)) == ["a begins", "a ends", "b begins", "b ends"] and told(run).lost == 0


def test_the_newest_stay_and_the_others_are_counted(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        for n in range(MOST_LINES - 10):
            ctx.log(f"a {n}")
        await ctx.signal("go")
        for n in range(MOST_LINES + 30):  # more than wait to be sent: the last thirty are dropped here
            ctx.log(f"b {n} {'x' * 5000}")
        return End()

    run = stage.start(agent_of(node))
    assert stage.drive() == "parked"
    stage.send_told()
    assert told(run).lines == MOST_LINES - 10
    signals.signal(run.id, "go", by=OLGA)
    assert stage.drive() == "completed"
    stage.send_told()
    kept = lines(run)
    assert len(kept) == told(run).lines == MOST_LINES and max(map(len, kept)) == LONGEST
    assert told(run).lost == MOST_LINES + 20 and kept[-1].startswith(f"b {MOST_LINES + 29} ")


def test_what_was_dropped_on_the_way_is_counted_by_the_next_that_comes(stage: Stage) -> None:
    run = stage.start(agent_of(quiet_one))
    journal = stage.take(run)
    lease = journal.lease
    for numbers, lost in (([0, 1], 0), ([5], 3), ([5, 1], 3), ([6], 3)):
        for n in numbers:
            stage.teller.keep(str(run.id), lease, _line(n))
        stage.send_told()
        assert told(run).lost == lost, numbers
    assert lines(run) == ["line 0", "line 1", "line 5", "line 6"]


async def quiet_one(state: Notes, ctx: Context) -> End:
    return End()


def _line(n: int, text: str = "") -> Told:
    return Told("0.1/", n, datetime.now(UTC), text or f"line {n}", "info")


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
    assert len(told(run).note) == LONGEST and verify(run.id).problems == []
    (logged,) = [record for record in caplog.records if "DROP TABLE" in record.getMessage()]
    assert logged.levelname == "ERROR" and logged.getMessage().isprintable()


def test_no_step_waits_for_what_is_said(stage: Stage, tools: Toolbox) -> None:
    """While its row is locked, and while nobody sends, the run goes on."""

    async def node(state: Notes, ctx: Context) -> End:
        for n in range(3):
            ctx.log(f"{n}")
            await ctx.call(tools.order, Item(name=f"{n}"))
        return End()

    quiet = stage.start(agent_of(_orders(tools), tools=tools.all()))
    assert stage.drive() == "completed"
    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "completed"
    count = Event.objects.filter(run_id=run.id).count()
    assert count == Event.objects.filter(run_id=quiet.id).count() and not Telling.objects.exists()
    stage.send_told()
    assert lines(run) == ["0", "1", "2"], "also when the run has ended, by whoever drove it last"


def _orders(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Context) -> End:
        for n in range(3):
            await ctx.call(tools.order, Item(name=f"quiet {n}"))
        return End()

    return node


def test_what_is_left_is_told_from_the_pace_of_the_claim(stage: Stage) -> None:
    run = stage.start(agent_of(quiet_one))
    lease, began = stage.take(run).lease, datetime.now(UTC)
    seen = []
    for n, (seconds, done) in enumerate(((0, 10.0), (60, 20.0), (120, 40.0))):
        at = began + timedelta(seconds=seconds)
        stage.teller.keep(str(run.id), lease, Told("0.1/progress", n, at, "", done=done, of=100.0))
        stage.send_told()
        come = progress_of(families.heads([run.id])[run.id])
        assert come is not None
        seen.append((come.percent, come.left_seconds))
    assert seen == [(10, None), (20, 480.0), (40, 240.0)]
    stage.teller.keep(str(run.id), lease, Told("0.1/progress", 3, began, "", done=50.0))
    stage.send_told()
    come = progress_of(families.heads([run.id])[run.id])
    assert come is not None and (come.percent, come.left_seconds) == (None, None)
