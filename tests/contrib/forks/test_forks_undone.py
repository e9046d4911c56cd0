from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from durableagents import BusinessFailure, Context, End, Failure
from durableagents.contrib.forks.points import cut_at, visits_of
from durableagents.contrib.forks.starting_again import StartAgainRequest, Verdict, read_remains, start_again
from durableagents.contrib.replay import declared_secrets
from ledger import events as e
from ledger.errors import InvalidInput
from runs.journal.reader import TAKEN_BACK
from runs.models import Run
from runs.services import questions, signals
from tests.contrib.forks.test_forks import AGAIN, TAKE, asked, fork, say
from tests.integration.runs.families_undone import everything, sound
from tests.integration.runs.stage import Mood, Stage, events, fresh, now, problems
from tests.integration.runs.test_undo_families import child_of, until_reopened
from tests.tampering import tamper, without_triggers
from tests.unit.engine.undoings import Reversible, names
from tests.world import OLGA, SHOP, Asked, Notes, Outside, agent_of

SINCE = r"the state depends on effects that were undone since: book at 0\.1/1"


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


def parent(tools: Reversible) -> Any:
    async def one(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.book, {"name": "a"})
        return "two"

    async def two(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.book, {"name": "b"})).ref)

    child = agent_of(one, two, name="undone-child", tools=tools.all())

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.child(child, Asked(text="x"))
        await ctx.signal("go")
        raise Failure("no luck")

    return agent_of(node, name="undoing-parent", tools=tools.all())


@pytest.fixture
def run(stage: Stage, tools: Reversible) -> Run:
    run = stage.start(parent(tools))
    everything(stage)
    assert str(child_of(run).state) == "completed"
    return run


def undo(stage: Stage, run: Run) -> None:
    signals.signal(run.pk, "go", None, by=SHOP)
    everything(stage)


def choices(run: Run) -> list[str]:
    return list(asked(run).detail["schema"]["properties"]["decision"]["enum"])


def test_an_effect_that_was_undone_since_is_not_offered(stage: Stage, run: Run, outside: Outside) -> None:
    made = fork(child_of(run), 2)
    undo(stage, run)
    assert names(outside) == ["book", "book", "unbook", "unbook"] and str(child_of(run).state) == "cancelled"
    assert choices(made) == ["do_it_again", "take_what_is_on_record", "no"], "it was asked before"
    say(made, TAKE)
    everything(stage)
    assert choices(made) == ["do_it_again", "no"] and "and undid it" in asked(made).detail["about"]
    assert events(made, e.AnswerTakenOver) == []
    say(made, AGAIN)
    everything(stage)
    assert str(fresh(made).state) == "completed" and names(outside)[-1] == "book" and problems(made) == []


def test_an_effect_that_is_about_to_be_undone_is_not_offered(stage: Stage, run: Run) -> None:
    """The child is reopened, but its plan is not made yet."""
    made = fork(child_of(run), 2)
    everything(stage)
    signals.signal(run.pk, "go", None, by=SHOP)
    child = until_reopened(stage, run)
    Run.objects.filter(pk=child.pk).update(ready_at=None)
    say(made, TAKE)
    stage.settle(made)
    assert choices(made) == ["do_it_again", "no"]


def test_what_a_person_said_happened_is_asked_about_once_it_is_undone(stage: Stage, run: Run) -> None:
    child = child_of(run)
    audit = [Verdict(x.slot, x.attempt, "happened") for x in read_remains(child).effects]
    made = start_again(child.pk, StartAgainRequest(audit), by=OLGA, justification="again")
    Run.objects.filter(pk=made.pk).update(ready_at=None)
    undo(stage, run)
    Run.objects.filter(pk=made.pk).update(ready_at=now())
    everything(stage)
    assert choices(made) == ["do_it_again", "no"] and events(made, e.AnswerTakenOver) == []


def test_what_was_taken_back_is_found_without_the_rest_of_the_journal(stage: Stage, run: Run) -> None:
    undo(stage, run)
    tamper(
        "INSERT INTO ledger_event (run_id, seq, epoch, at, kind, attempt, clear, prev_hash, hash)"
        " SELECT %s, 1000 + n, 1, now(), 'StepNoted', 0, '', '', '' FROM generate_series(1, 20000) n",
        run.pk,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_event")
        plans = []
        for statement, values in ((TAKEN_BACK, [[run.pk]]), (declared_secrets._RELATED, [run.pk, run.pk])):
            cursor.execute(f"EXPLAIN {statement}", values)
            plans.append("\n".join(row[0] for row in cursor.fetchall()))
    assert all("ledger_event_turned" in plan for plan in plans), plans


def test_a_record_of_an_undo_that_can_not_be_read_counts_as_one(stage: Stage, run: Run) -> None:
    made = fork(child_of(run), 2)
    undo(stage, run)
    with without_triggers() as cursor:
        changed = "UPDATE ledger_event SET clear = clear || ' '::bytea WHERE run_id = %s AND kind ~ 'Undo'"
        cursor.execute(changed, [child_of(run).pk])
    say(made, TAKE)
    everything(stage)
    assert choices(made) == ["do_it_again", "no"]


def test_no_fork_begins_at_what_was_undone_since_wherever_that_was_done(stage: Stage, run: Run) -> None:
    """By the run itself, its origin, or a run whose effects it was given."""
    child = child_of(run)
    made = fork(child, 2)
    everything(stage)
    say(made, TAKE)
    everything(stage)
    again = fork(child, 1)
    everything(stage)
    say(again, TAKE)
    everything(stage)
    assert [x.problem for each in (child, made, again) for x in visits_of(each)] == [""] * 5
    undo(stage, run)
    for each, visit in ((child, 2), (made, 1), (again, 2)):
        with pytest.raises(InvalidInput, match=SINCE):
            cut_at(fresh(each), visit)
        fields = {x.visit: x.problem for x in visits_of(fresh(each))}
        assert "were undone since: book at 0.1/1" in fields[visit]
    assert {x.visit: x.problem for x in visits_of(fresh(again))}[1] == ""
    assert [x.outcome for x in cut_at(fresh(child), 1).effects if x.tool == "book"] == ["undone", "undone"]


def test_effect_left_by_a_person_can_stand_for_a_call(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def only(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.book, {"name": "a"})
        if mood.is_bad:
            raise Failure("no luck")
        return End()

    mood = Mood()
    agent = agent_of(only, name="left-standing", tools=tools.all())
    run = stage.start(agent)
    outside.trouble("unbook", BusinessFailure("too late", code="late"))
    stage.settle(run)
    question = asked(run)
    questions.answer(run.pk, question.pk, {"decision": "leave", "justification": "it may stay"}, by=OLGA)
    assert stage.settle(run) == "failed" and len(events(run, e.EffectLeft)) == 1
    (found,) = [x for x in cut_at(fresh(run), 1).effects if x.tool == "book"]
    assert (found.outcome, found.has_result) == ("committed", True)
    mood.is_bad = False
    made = fork(fresh(run), 1)
    stage.settle(made)
    assert "take_what_is_on_record" in choices(made)
    say(made, TAKE)
    assert stage.settle(made) == "completed" and names(outside).count("book") == 1
    sound(fresh(run))
