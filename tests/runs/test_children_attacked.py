"""Families under attack: rows that are gone or forged, and people who may not. What is told is what a journal proves,
and one family's trouble is nobody else's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest

from durableagents import Agent, Context, End
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.models import Event, Head
from runs.models import Run
from runs.services import lifecycle
from runs.services.families import ends
from runs.workers import timers
from tests.conftest import database_urls
from tests.fleet.conftest import until
from tests.runs.families import ended, with_child
from tests.runs.hosts import working
from tests.runs.situations import act
from tests.runs.stage import Stage, events, fresh, kinds, output, waiting
from tests.runs.test_children import children, everything, helper, parent_of, whole
from tests.runs.test_damage import by_hand
from tests.runs.test_forgery import append, make_ready
from tests.world import LENA, Item, Notes, Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db
Sql = psycopg.Connection[Any]
__all__ = ["helper"]  # the fixture


@pytest.fixture
def sql(stage: Stage, postgres: Mapping[str, str]) -> Iterator[Sql]:
    """What smuggled SQL has: the role that everything runs as."""
    with psycopg.connect(database_urls(postgres)["runtime"], autocommit=True) as link:
        yield link


# --- rows that are gone -----------------------------------------------------------------------------------------------


def lose_head(run: Run, child: Run) -> None:
    Head.objects.filter(pk=child.pk).delete()


def lose_end(run: Run, child: Run) -> None:
    by_hand("DELETE FROM ledger_event WHERE kind = 'RunCompleted' AND run_id = %s", child)


def lose_parents_row(run: Run, child: Run) -> None:
    by_hand("DELETE FROM runs_run WHERE id = %s", run)


def lose_parents_head(run: Run, child: Run) -> None:
    Head.objects.filter(pk=run.pk).delete()


def spoil_end(run: Run, child: Run) -> None:
    by_hand("UPDATE ledger_event SET sealed = '\\x0102' WHERE kind = 'RunCompleted' AND run_id = %s", child)


DAMAGES: list[Callable[[Run, Run], None]] = [lose_head, lose_end, lose_parents_row, lose_parents_head, spoil_end]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_family_keeps_no_other_waiting(
    stage: Stage, helper: Agent, damage: Callable[[Run, Run], None]
) -> None:
    broken, child = ended(stage, helper)
    sound, _ = ended(stage, helper)
    damage(broken, child)
    timers.tell_parents()
    everything(stage)
    assert output(sound) == ["order:a"]
    assert not Event.objects.filter(run_id=broken.pk, kind="ChildEnded").exists(), "nobody tells what nobody can read"


@pytest.mark.parametrize("damage", [lose_head, lose_end, spoil_end])
def test_what_can_not_be_told_is_shown_to_an_operator(
    stage: Stage, helper: Agent, damage: Callable[[Run, Run], None]
) -> None:
    run, child = ended(stage, helper)
    damage(run, child)
    for _ in range(timers.MOST_TROUBLES):
        timers.tell_parents()
        for child_id, (_, count) in timers._troubled.items():
            timers._troubled[child_id] = time.monotonic(), count  # half a minute later
    (stop,) = [w for w in waiting(run) if w.kind == "operator"]
    assert str(child.pk) in stop.detail["problem"]


def test_many_damaged_families_starve_nobody(stage: Stage, helper: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "BATCH", 2)
    for _ in range(3):
        lose_head(*ended(stage, helper))
    sound, _ = ended(stage, helper)
    for _ in range(3):
        timers.tell_parents()
    everything(stage)
    assert output(sound) == ["order:a"]


@pytest.mark.parametrize("detail", ["[]", "{}", '"gone"', '{"child": 7}'])
def test_a_damaged_detail_changes_nothing(stage: Stage, helper: Agent, detail: str) -> None:
    run, _ = with_child(stage, helper)
    by_hand(f"UPDATE runs_wait SET detail = '{detail}' WHERE run_id = %s", run)
    everything(stage)
    assert output(run) == ["order:a"]


def test_a_parent_whose_wait_is_gone_hears_of_the_end_all_the_same(stage: Stage, helper: Agent) -> None:
    run, _ = ended(stage, helper)
    by_hand("DELETE FROM runs_wait WHERE run_id = %s", run)
    everything(stage)
    assert output(run) == ["order:a"]


# --- forged -----------------------------------------------------------------------------------------------------------


def test_a_forged_end_in_the_parents_journal_is_not_believed(stage: Stage, helper: Agent, sql: Sql) -> None:
    run, child = with_child(stage, helper)
    forged = e.ChildEnded(
        slot="0.1/1",
        attempt=0,
        child=str(child.pk),
        agent="helper@1.0.0",
        state="completed",
        code="",
        steps=0,
        tool_calls=0,
        model_calls=0,
        tokens_in=0,
        tokens_out=0,
        usd_micro=0,
        unpriced_calls=0,
        payload={"output": {"ref": "forged"}},
    )
    append(sql, run, forged)
    make_ready(sql, run)
    stage.settle(run)
    assert "forged_event" in [w.detail["reason"] for w in waiting(run) if w.kind == "operator"]
    assert not events(run, e.RunCompleted)


@pytest.mark.parametrize("state", ["completed", "cancelled"])
def test_a_forged_end_of_a_child_is_told_to_nobody(stage: Stage, helper: Agent, sql: Sql, state: str) -> None:
    """With the application's own rights a row may say anything; what is told is what the child's journal proves."""
    run, child = with_child(stage, helper, "wait")
    stage.drive()
    end: e.Event = e.RunCompleted(payload={"ref": "forged"})
    make_ready(sql, child)
    append(sql, child, end if state == "completed" else e.RunCancelled(by="user:olga", in_flight=[]))
    sql.execute(
        "UPDATE runs_run SET state = %s, ended_at = clock_timestamp(), end_seq = (SELECT seq FROM ledger_head"
        " WHERE run_id = id) WHERE id = %s",
        [state, child.pk],
    )
    timers.tell_parents()
    assert not events(run, e.ChildEnded) and str(fresh(run).state) == "waiting_event"


def test_an_end_that_a_retry_took_back_is_not_told(stage: Stage, helper: Agent, sql: Sql) -> None:
    run, child = ended(stage, helper, "fail")
    was = fresh(child)
    act("retry", child)
    sql.execute(
        "UPDATE runs_run SET state = 'failed', ended_at = %s, end_seq = %s WHERE id = %s",
        [was.ended_at, was.end_seq, child.pk],
    )
    timers.tell_parents()
    assert not events(run, e.ChildEnded)


def test_a_run_that_is_nobodys_child_is_told_to_nobody(stage: Stage, helper: Agent, sql: Sql) -> None:
    """One's own run, with an output of one's choice, put in the place of somebody's child."""
    run, _ = with_child(stage, helper, "wait")
    stage.drive()
    mine = stage.start(agent_of(ends_with({"ref": "forged"}), name="mine"))
    stage.drive()
    sql.execute("UPDATE runs_run SET parent = %s, parent_slot = '0.1/1' WHERE id = %s", [run.pk, mine.pk])
    timers.tell_parents()
    assert not events(run, e.ChildEnded) and str(fresh(run).state) == "waiting_event"


def test_an_event_of_another_kind_is_no_end(stage: Stage, helper: Agent, sql: Sql) -> None:
    run, child = with_child(stage, helper, "wait")
    stage.drive()
    make_ready(sql, child)
    sql.execute(
        "UPDATE runs_run SET state = 'completed', ended_at = clock_timestamp(), end_seq = 1 WHERE id = %s", [child.pk]
    )
    timers.tell_parents()
    assert not events(run, e.ChildEnded)


# --- wrong person -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["pause", "cancel"])
def test_who_may_not_stop_the_parent_stops_no_child(stage: Stage, helper: Agent, what: str) -> None:
    run, child = with_child(stage, helper, "wait")
    stage.drive()
    for by in (LENA, Actor("key", "other", role="integrator", auth="api_key", person=8)):
        with pytest.raises(Forbidden):
            getattr(lifecycle, what)(run.pk, by=by, justification="mine now")
    assert (str(fresh(run).state), str(fresh(child).state)) == ("waiting_event", "waiting_event")
    assert not any(k in kinds(child) for k in ("PauseRequested", "RunPaused", "RunCancelled"))


def test_who_started_the_parent_decides_no_gate_of_its_children(stage: Stage, tools: Toolbox) -> None:
    async def buy(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="po", amount=84_000))).ref)

    payer = agent_of(buy, name="payer", tools=tools.all())
    fiona = Actor("user", "fiona", role="approver_finance", auth="session")  # as before accounts were noted
    run = lifecycle.start(parent_of(payer, "a").graph_id, {}, by=fiona)
    stage.drive(), stage.drive()
    (child,) = children(run)
    with pytest.raises(Exception, match="started this run"):
        stage.decide(child)
    assert str(fresh(child).state) == "waiting_human"


# --- nobody told ------------------------------------------------------------------------------------------------------


def test_a_workers_housekeeping_finds_an_end_that_nobody_told(stage: Stage, helper: Agent) -> None:
    run, child = ended(stage, helper)
    with working(stage):
        until(lambda: str(fresh(run).state) == "completed")
    assert output(run) == ["order:a"]
    whole(run, child)
