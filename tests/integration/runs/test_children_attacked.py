from __future__ import annotations

from collections.abc import Callable

import pytest

from durableagents import Agent
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden
from ledger.models import Event, Head
from runs.models import Run
from runs.services import lifecycle
from runs.workers import timers
from tests.integration.runs.families import ended, with_child
from tests.integration.runs.stage import Stage, events, fresh, kinds, output, waiting
from tests.integration.runs.test_children import everything, helper
from tests.integration.runs.test_damage import by_hand
from tests.integration.runs.test_forgery import Sql, append, make_ready, sql
from tests.world import LENA

__all__ = ["helper", "sql"]  # the fixtures


# --- deleted rows -----------------------------------------------------------------------------------------------------


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
def test_damaged_family_blocks_no_other(stage: Stage, helper: Agent, damage: Callable[[Run, Run], None]) -> None:
    broken, child = ended(stage, helper)
    sound, _ = ended(stage, helper)
    damage(broken, child)
    timers.tell_parents()
    everything(stage)
    assert output(sound) == ["order:a"]
    assert not Event.objects.filter(run_id=broken.pk, kind="ChildEnded").exists(), "nobody tells what nobody can read"


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
    """A row may say anything with the application's rights; parents are told what the child's journal proves."""
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
