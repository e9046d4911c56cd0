"""The table of legal state changes is declared once; model and database both enforce it."""

from __future__ import annotations

import itertools
from uuid import uuid4

import pytest
from django.db import Error, connection, transaction
from django_fsm import TransitionNotAllowed

from runs.models import Run, State, legal_moves
from tests.cases import each_case
from tests.integration.runs.stage import now
from tests.tampering import tamper

pytestmark = pytest.mark.usefixtures("db")
STATES = [str(s) for s in State]
LEGAL = legal_moves()
ILLEGAL = sorted(set(itertools.permutations(STATES, 2)) - set(LEGAL))


def run_in(state: str) -> Run:
    at = now()
    run = Run(
        id=uuid4(),
        agent="a",
        version="1.0.0",
        graph_id="a@1.0.0",
        trace_id="t",
        created_by="x",
        created_at=at,
        updated_at=at,
    )
    run.save(force_insert=True)
    tamper("UPDATE runs_run SET state = %s WHERE id = %s", state, run.id)
    return Run.objects.get(pk=run.pk)


def test_the_table_is_the_one_that_the_design_draws() -> None:
    """Ended runs stay ended, except a retried failed one and a completed child undone with its parent."""
    assert {source for source, _ in LEGAL} == set(STATES) - {"cancelled"}
    assert [target for source, target in LEGAL if source == "failed"] == ["running"]
    assert {source for source, target in LEGAL if target == "pending"} == {"paused"}
    assert {source for source, target in LEGAL if target == "completed"} == {"running"}
    assert {source for source, target in LEGAL if target == "compensating"} == {
        "running",
        "paused",
        "waiting_event",
        "waiting_human",
        "waiting_tool",
        "completed",
    }
    assert {target for source, target in LEGAL if source == "completed"} == {"compensating"}, "for its parent's undo"
    assert len(LEGAL) + len(ILLEGAL) == len(STATES) * (len(STATES) - 1)


@each_case("source", sorted({source for source, _ in LEGAL}))
def test_every_legal_move_works_by_the_model_and_in_sql(source: str) -> None:
    for target in [target for known, target in LEGAL if known == source]:
        run, by_hand = run_in(source), run_in(source)
        moves = [
            t for t in Run._meta.get_field("state").get_all_transitions(Run) if (t.source, t.target) == (source, target)
        ]
        getattr(run, moves[0].name)()
        run.save(update_fields=["state"])
        assert Run.objects.get(pk=run.pk).state == target
        with connection.cursor() as cursor:
            cursor.execute("UPDATE runs_run SET state = %s WHERE id = %s", [target, by_hand.pk])
        assert Run.objects.get(pk=by_hand.pk).state == target


@each_case("source", sorted({source for source, _ in ILLEGAL}))
def test_no_illegal_move_is_made_not_even_in_sql(source: str) -> None:
    run = run_in(source)
    for target in [target for known, target in ILLEGAL if known == source]:
        for move in Run._meta.get_field("state").get_all_transitions(Run):
            if move.target == target:
                with pytest.raises(TransitionNotAllowed):
                    getattr(run, move.name)()
        assert "Invalid transition" in answer_to("UPDATE runs_run SET state = %s WHERE id = %s", target, run.pk), target
        with pytest.raises(Error, match="Invalid transition"), transaction.atomic():
            Run.objects.filter(pk=run.pk).update(state=target)
        assert Run.objects.get(pk=run.pk).state == source, target


def answer_to(statement: str, *given: object) -> str:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, given)
    except Error as error:
        return str(error)
    return ""


@each_case("state", [s for s in STATES if s != "pending"])
def test_a_run_is_born_pending(state: str) -> None:
    at = now()
    run = Run(
        id=uuid4(),
        state=state,
        agent="a",
        version="1",
        graph_id="a@1",
        trace_id="",
        created_by="",
        created_at=at,
        updated_at=at,
    )
    with pytest.raises(Error, match="begins as pending"), transaction.atomic():
        run.save(force_insert=True)


@each_case("state", ["dreaming", "", "RUNNING", "running "])
def test_a_state_that_does_not_exist_can_not_be_reached(state: str) -> None:
    run = run_in("running")
    with pytest.raises(Error), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET state = %s WHERE id = %s", [state, run.pk])


def test_the_state_can_not_be_assigned_behind_the_transitions_back() -> None:
    with pytest.raises(AttributeError):
        run_in("running").state = "completed"
