"""Questions to people on the real database: permissions, validation, and one accepted answer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from durableagents import Context, End
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, NotFound
from ledger.models import Event
from runs.models import Run, Wait
from runs.services import lifecycle, questions
from runs.services.questions import QuestionClosed
from runs.workers import timers
from tests.integration.runs.aging import written_as
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, dump, events, fresh, now, output, problems, waiting
from tests.tampering import as_stored
from tests.world import FIONA, LENA, OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of


class Address(BaseModel):
    street: str = Field(min_length=1)
    floor: int | None = None


class Visit(BaseModel):
    """The time of a visit."""

    day: Literal["monday", "friday"]
    people: int = Field(ge=1, le=9)
    where: Address


GOOD = {"day": "friday", "people": 2, "where": {"street": "Quay 1"}}


@pytest.fixture
def run(stage: Stage) -> Run:
    return asking(stage, "legal")


def asking(stage: Stage, of: str, **more: Any) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        visit = await ctx.ask(of, title="When may we come?", schema=Visit, prefilled={"day": "monday"}, **more)
        return End(None if visit is None else visit.model_dump())

    run = stage.start(agent_of(node))
    assert stage.drive() == "parked" and fresh(run).state == "waiting_human"
    return run


def answer(run: Run, given: Any = GOOD, by: Actor = LENA, why: str = "") -> Run:
    wait = Wait.objects.get(run=run, kind="input", n=Wait.objects.filter(run=run, kind="input").count() - 1)
    return questions.answer(run.id, wait.id, given, by=by, justification=why)


def test_an_answer_is_recorded_with_who_gave_it_and_the_run_goes_on(stage: Stage, run: Run) -> None:
    answer(run, why="they called")
    check_against_journal(run)
    (found,) = events(run, e.InputAnswered)
    assert (found.by, found.role) == (LENA.ref, "approver_legal")
    assert found.payload == {"answer": GOOD, "justification": "they called"}
    assert stage.drive() == "completed" and output(run)["where"] == {"street": "Quay 1", "floor": None}


@pytest.mark.parametrize(
    ("of", "may", "may_not"),
    [
        ("legal", [LENA, OLGA], [FIONA, SHOP]),  # a queue
        ("approver_finance", [FIONA, OLGA], [LENA, SHOP]),  # a role
        ("operator", [OLGA], [LENA, FIONA, SHOP]),
        ("integrator", [SHOP, OLGA], [LENA, FIONA]),
    ],
)
def test_only_its_queue_and_operators_answer(stage: Stage, of: str, may: list[Actor], may_not: list[Actor]) -> None:
    for by in may:
        run = asking(stage, of)
        before = dump()
        for other in may_not:
            with pytest.raises(Forbidden):
                answer(run, by=other)
        assert dump() == before
        answer(run, by=by)
        assert stage.drive() == "completed"


def test_a_question_to_nobody_stops_for_an_operator_and_an_older_one_is_an_operators(stage: Stage, run: Run) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.ask("nobody in particular", title="When?", schema=Visit)
        return End()

    stopped = stage.start(agent_of(node))
    assert stage.drive() == "operator"
    (found,) = events(stopped, e.OperatorNeeded)
    assert (
        found.reason == "unknown_queue"
        and "approver_legal" in found.payload["known"]
        and "legal" in found.payload["known"]
    )
    wait, row = Wait.objects.get(run=run, kind="input"), Event.objects.get(run_id=run.pk, kind="WaitOpened")
    of = {"of": "nobody in particular"}  # asked before any check
    (result,) = events(run, e.WaitOpened)
    written_as(row, replace(result, payload=result.payload | of))
    Wait.objects.filter(pk=wait.pk).update(**as_stored(Wait, detail=wait.detail | of))
    with pytest.raises(Forbidden):
        answer(run, by=LENA)
    answer(run, by=OLGA)
    assert stage.drive() == "completed"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (None, "answer"),
        ([], "answer"),
        ({**GOOD, "day": "sunday"}, "answer.day"),
        ({**GOOD, "people": 0}, "answer.people"),
        ({**GOOD, "people": "2"}, "answer.people"),
        ({**GOOD, "where": {}}, "answer.where.street"),
        ({**GOOD, "where": {"street": ""}}, "answer.where.street"),
        ({**GOOD, "where": {"street": "x", "floor": "y"}}, "answer.where.floor"),
        ({"people": 1, "where": {"street": "x"}}, "answer.day"),
    ],
)
def test_what_does_not_fit_is_refused_by_field_and_nothing_is_recorded(run: Run, given: Any, field: str) -> None:
    before = dump()
    with pytest.raises(InvalidInput) as refused:
        answer(run, given)
    assert [problem["field"] for problem in refused.value.extra["errors"]] == [field]
    assert dump() == before


def test_of_twenty_answers_at_once_the_first_stands_and_the_others_are_told_whose(stage: Stage, run: Run) -> None:
    acts = [partial(answer, run, {**GOOD, "people": 1 + i % 9}, (LENA, OLGA)[i % 2]) for i in range(20)]
    answers = at_once(*acts)
    lost = [x for x in answers if isinstance(x, QuestionClosed)]
    assert len(lost) == 19 and len([x for x in answers if isinstance(x, Run)]) == 1
    (found,) = events(run, e.InputAnswered)
    (wait,) = Wait.objects.filter(run=run, kind="input")
    assert wait.resolved_by == found.by
    assert all(x.extra["answered_by"] == found.by and f"by {found.by} at" in x.detail for x in lost)
    check_against_journal(run)
    assert stage.drive() == "completed" and output(run)["people"] == found.payload["answer"]["people"]


def test_answers_and_the_deadline_at_once_have_one_winner(stage: Stage) -> None:
    for _ in range(4):
        run = asking(stage, "legal", or_else=None)
        Wait.objects.filter(run=run).update(deadline=now())
        answers = at_once(partial(answer, run), timers.sweep, partial(answer, run, GOOD, OLGA))
        assert [type(x) for x in answers if isinstance(x, Exception)] == [QuestionClosed] * 2, "the deadline had passed"
        check_against_journal(run)
        timers.sweep()  # the sweep skips this wait, which an answer has locked
        assert stage.drive() == "completed" and output(run) is None


def test_a_late_answer_is_told_so(stage: Stage) -> None:
    run = asking(stage, "legal", or_else=None)
    Wait.objects.filter(run=run).update(deadline=now())
    with pytest.raises(QuestionClosed, match="Its deadline passed"):
        answer(run)
    timers.sweep()
    assert stage.drive() == "completed"
    with pytest.raises(QuestionClosed, match="Its deadline passed"):
        answer(run)
    cancelled = asking(stage, "legal")
    lifecycle.cancel(cancelled.id, by=OLGA, justification="not needed")
    with pytest.raises(QuestionClosed, match="run ended"):
        answer(cancelled)


def test_an_answer_to_a_paused_run_is_taken_and_kept(stage: Stage, run: Run) -> None:
    lifecycle.pause(run.id, by=OLGA, justification="wait")
    answer(run)
    assert fresh(run).state == "paused"
    lifecycle.resume(run.id, by=OLGA, justification="go on")
    assert stage.drive() == "completed" and output(run)["people"] == 2


def test_what_is_no_question_of_the_run_is_not_found(stage: Stage, run: Run) -> None:
    other = asking(stage, "legal")
    (wait,) = waiting(other)
    with pytest.raises(NotFound):
        questions.answer(run.id, wait.id, GOOD, by=OLGA)


def test_retry_asks_an_unanswered_question_again(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        visit, _ = await ctx.gather(
            ctx.ask("legal", title="When?", schema=Visit), ctx.call(tools.order, Item(name="a"))
        )
        return End(visit.people)

    outside.trouble("order", ZeroDivisionError("a bug"))
    run = stage.start(agent_of(node, tools=tools.all()))
    assert stage.drive() == "failed"
    with pytest.raises(QuestionClosed):
        answer(run)
    lifecycle.retry(run.id, by=OLGA, justification="mended")
    check_against_journal(run)
    assert stage.drive() == "parked"
    answer(run)
    assert stage.drive() == "completed" and output(run) == 2 and len(outside.executed()) == 1
    check_against_journal(run)


# --- answered too late ---


def test_a_retry_asks_the_question_again_with_all_its_time(stage: Stage) -> None:
    run = asking(stage, "legal")
    for attempt in range(2):
        Wait.objects.filter(run=run, resolved_at__isnull=True).update(deadline=now())
        timers.sweep()
        assert stage.drive() == "failed" and fresh(run).error_code == "timed_out"
        lifecycle.retry(run.id, by=OLGA, justification="they are back")
        check_against_journal(run)
        assert stage.drive() == "parked" and str(fresh(run).state) == "waiting_human"
        (question,) = waiting(run)
        assert (question.kind, question.attempt, question.n) == ("input", attempt + 1, 0) and question.deadline > now()
    questions.answer(run.id, question.id, GOOD, by=LENA)
    check_against_journal(run)
    assert stage.drive() == "completed" and output(run)["day"] == "friday" and problems(run) == []
