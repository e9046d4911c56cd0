"""A raise answers what was asked, or it doesn't: what is too little, the wrong cap, or decided on caps that somebody
has set since."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Context, End, TransportError
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from runs.engine.budget.amounts import NOTHING_USED, Usage
from runs.engine.budget.limits import Budget
from runs.engine.steps.spending import lost, reserved_by
from runs.journal.reader import tape_of
from runs.models import Run, Wait
from runs.queries.reserved import reserved
from runs.services import lifecycle
from runs.services.budgets.asked import StaleBudget, known
from runs.services.budgets.raising import set_budget, time_is_up
from runs.workers import timers
from tests.runs.situations import NOT_ENDED, Situations
from tests.runs.stage import Stage, at_once, dump, events, fresh, head, kinds, now, overrides
from tests.runs.test_budgets import (
    WHY,
    asked,
    at_cap,
    is_sound,
    ordering,
    overdue,
    priced,
    raised,
    start,
    thinking,
)
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of
from tests.writing import intend, record

pytestmark = pytest.mark.django_db


def still_asks(run: Run, stage: Stage) -> dict[str, Any]:
    """What it asks for, after a raise that isn't enough: nothing moves, and it is the same question."""
    assert stage.drive() == "idle" and str(fresh(run).state) == "paused" and "RunResumed" not in kinds(run)
    is_sound(run)
    (wait,) = asked(run)
    return known(wait)


def test_too_little_is_on_record_and_keeps_the_question_open(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = at_cap(stage, tools, "order", "order", "order", tool_calls=1)
    (before,) = asked(run)
    for most in (0, 1):
        raised(run, tool_calls=most)
        told = still_asks(run, stage)
        assert (told["most"], told["used"], told["wanted"], told["enough"]) == (most, 1, 1, {"tool_calls": 2})
    assert [record.action for record in overrides(run)] == ["budget"] * 2 and len(outside.requests) == 1
    (after,) = asked(run)
    assert (after.pk, after.deadline) == (before.pk, before.deadline), "no fresh week"
    raised(run, tool_calls=2)
    assert not asked(run) and stage.drive() == "paused" and len(outside.requests) == 2
    is_sound(run)


def test_another_cap_is_no_answer(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    raised(run, steps=100)
    assert still_asks(run, stage)["resource"] == "tool_calls" and head(run).cap_steps == 100
    raised(run, steps=1)
    told = still_asks(run, stage)
    assert told["resource"] == "steps" and told["enough"] == {"steps": 2, "tool_calls": 2}
    raised(run, tool_calls=9)
    assert still_asks(run, stage)["enough"] == {"steps": 2}
    raised(run, steps=2)
    assert stage.drive() == "completed"
    is_sound(run)


def test_all_that_a_request_needs_is_told_at_once(stage: Stage, tools: Toolbox) -> None:
    priced()
    run = start(thinking(tools), usd="0.000001", tokens_out=5, model_calls=9)
    assert stage.drive() == "paused"
    (wait,) = asked(run)
    needs, enough = wait.detail["needs"], wait.detail["enough"]
    assert set(enough) == {"tokens_out", "usd_micro"} and "model_calls" in needs
    assert enough == {name: needs[name] for name in enough}
    raised(run, tokens_out=enough["tokens_out"])
    assert still_asks(run, stage)["enough"] == {"usd_micro": enough["usd_micro"]}
    raised(run, usd=f"{enough['usd_micro'] / 1_000_000:.6f}")
    assert stage.drive() == "completed", "what is told to be enough is"
    is_sound(run)


def test_what_is_set_aside_for_calls_in_doubt_counts(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        calls = [ctx.call(tools.mail, Item(name="a")), ctx.call(tools.order, Item(name="b"))]
        return End(len(await ctx.gather(*calls)))

    tools.outside.trouble("mail", TransportError("cut"), when="after")
    run = start(agent_of(node, tools=tools.all()), tool_calls=1)
    assert stage.drive() == "paused"
    told = asked(run)[0].detail
    assert (told["used"], told["reserved"], told["enough"]) == (0, 1, {"tool_calls": 2})
    raised(run, tool_calls=1)
    assert still_asks(run, stage)["enough"] == {"tool_calls": 2}
    raised(run, tool_calls=2)
    assert not asked(run)
    is_sound(run)


def test_time_that_ran_out_meanwhile_has_to_be_given_too(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1, wall_seconds=60)
    Run.objects.filter(pk=run.pk).update(time_up_at=now() - timedelta(seconds=1))
    raised(run, tool_calls=2)
    told = still_asks(run, stage)
    assert told["resource"] == "time"
    timers.ask_for_time()
    assert len(asked(run)) == 1
    raised(run, tool_calls=1)
    assert still_asks(run, stage)["resource"] == "tool_calls"
    raised(run, tool_calls=2, wall_seconds=3600)
    assert stage.drive() == "completed"
    is_sound(run)


def test_who_is_asked_for_time_may_set_something_else_first(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order", "order"), tool_calls=9, wall_seconds=60)
    Run.objects.filter(pk=run.pk).update(time_up_at=now() - timedelta(seconds=1))
    time_is_up(run.pk)
    raised(run, tool_calls=10)
    assert still_asks(run, stage)["resource"] == "time"
    raised(run, wall_seconds=None)
    assert stage.drive() == "completed"
    assert overrides(run)[-1].after["caps"] == {"tool_calls": 10}
    is_sound(run)


def test_a_question_from_before_names_only_its_own_cap(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    (wait,) = asked(run)
    old = {name: value for name, value in wait.detail.items() if name not in ("needs", "enough")}
    Wait.objects.filter(pk=wait.pk).update(detail=old)
    raised(run, tool_calls=1)
    assert still_asks(run, stage)["enough"] == {"tool_calls": 2}
    raised(run, tool_calls=2)
    assert stage.drive() == "completed"
    is_sound(run)


@pytest.mark.parametrize(
    "detail",
    [
        [],
        "text",
        {"needs": 7},
        {"needs": {"tool_calls": "many", "steps": True, "gold": 1}},
        {"resource": []},
        {"resource": "time", "most": "x"},
        {"needs": {"tool_calls": -5}},
    ],
    ids=str,
)
def test_a_damaged_question_holds_nobody_up(stage: Stage, tools: Toolbox, detail: Any) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    Wait.objects.filter(run=run, kind="budget").update(detail=detail)
    raised(run, tool_calls=2, wall_seconds=3600)
    assert stage.drive() == "completed"
    is_sound(run)


def test_too_little_ends_at_the_first_deadline(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    raised(run, tool_calls=1)
    overdue(run)
    assert str(fresh(run).state) == "cancelled"
    is_sound(run)


def test_of_two_at_once_one_is_enough(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    answers = at_once(lambda: raised(run, steps=50), lambda: raised(run, tool_calls=7))
    assert not [x for x in answers if isinstance(x, Exception)]
    assert kinds(run).count("RunResumed") == 1 and head(run).cap_steps == 50
    assert stage.drive() == "completed"
    is_sound(run)


# --- what was seen ----------------------------------------------------------------------------------------------------


def seen(run: Run, was: dict[str, Any], **caps: Any) -> Run:
    return set_budget(run.id, Budget(**caps), by=OLGA, justification=WHY, seen=Budget(**was))


def test_who_saw_other_caps_undoes_no_raise(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"), tool_calls=1, steps=9)
    raised(run, tool_calls=100)
    before = dump()
    with pytest.raises(StaleBudget) as refused:
        seen(run, {"tool_calls": 1, "steps": 9}, tool_calls=2)
    assert "tool calls 1 then, 100 now" in refused.value.detail and dump() == before
    assert refused.value.extra["caps"]["tool_calls"] == 100
    assert [problem["field"] for problem in refused.value.extra["errors"]] == ["budget.tool_calls"]
    seen(run, {"tool_calls": 100, "usd": None}, tool_calls=2)
    assert head(run).cap_tool_calls == 2
    is_sound(run)


def test_a_cap_that_was_given_or_lifted_since_is_another_one(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"), tool_calls=1)
    for was in ({"steps": 5}, {"tool_calls": None}, {"wall_seconds": 60}, {"usd": "1"}):
        with pytest.raises(StaleBudget):
            seen(run, was, tool_calls=2)
    priced()
    raised(run, usd="5", wall_seconds=7200)
    seen(run, {"usd": "5.00", "wall_seconds": 7200}, tool_calls=2)
    with pytest.raises(InvalidInput):
        seen(run, {}, tool_calls=3)
    assert head(run).cap_tool_calls == 2


def test_of_many_who_saw_the_same_one_sets_it(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"), tool_calls=1)
    answers = at_once(*[lambda n=n: seen(run, {"tool_calls": 1}, tool_calls=n) for n in range(2, 8)])  # type: ignore[misc]
    assert sum(isinstance(x, StaleBudget) for x in answers) == 5 and len(overrides(run)) == 1
    assert len(events(run, e.BudgetSet)) == 2
    is_sound(run)


def test_the_record_of_a_raise_says_the_caps_before_and_after(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"), tool_calls=1, steps=9, wall_seconds=60)
    raised(run, tool_calls=5, steps=None, wall_seconds=7200)
    (record,) = overrides(run)
    assert record.before["caps"] == {"tool_calls": 1, "steps": 9, "wall_seconds": 60}
    assert record.after["caps"] == {"tool_calls": 5, "wall_seconds": 7200}
    assert record.before["state"] == "pending"
    is_sound(run)


# --- a person's pause besides -----------------------------------------------------------------------------------------


def test_who_pauses_what_waits_for_its_budget_resumes_it_after_the_raise(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    is_sound(run)
    before = dump()
    for act in (lifecycle.pause, lifecycle.resume):
        with pytest.raises(IllegalTransition):
            act(run.id, by=OLGA, justification=WHY)
        assert dump() == before
    raised(run, tool_calls=1)
    raised(run, tool_calls=2)
    assert not asked(run) and stage.drive() == "idle" and str(fresh(run).state) == "paused"
    is_sound(run)
    lifecycle.resume(run.id, by=OLGA, justification=WHY)
    assert stage.drive() == "completed"
    is_sound(run)


def test_a_pause_and_a_raise_at_once_leave_it_paused_or_going(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    at_once(lambda: lifecycle.pause(run.id, by=OLGA, justification=WHY), lambda: raised(run, tool_calls=9))
    is_sound(run)
    assert str(fresh(run).state) == "paused" and not asked(run)
    lifecycle.resume(run.id, by=OLGA, justification=WHY)
    assert stage.drive() == "completed"
    is_sound(run)


# --- what is set aside, as lists tell it ------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", NOT_ENDED)
def test_what_is_set_aside_is_what_a_worker_would_count(stage: Stage, tools: Toolbox, situation: str) -> None:
    run = fresh(Situations(stage, tools).make(situation))
    counted = sum((usage for _, usage in reserved_by(tape_of(run))), NOTHING_USED)
    assert reserved([run], {run.pk: head(run)}).get(run.pk, NOTHING_USED) == counted


def test_a_request_and_a_child_are_set_aside_until_they_are_over(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"))
    journal = stage.take(run)
    stage.wait(journal.load())
    routed = e.ModelRouted(slot="0.1/1", n=0, model="m", price=1, tokens_in=3, tokens_out=4, usd_micro=7)
    stage.wait(intend(journal, [routed]))
    aside = Usage(steps=1, model_calls=1, tokens_in=3, tokens_out=4, usd_micro=7)
    assert reserved([run], {run.pk: head(run)}) == {run.pk: aside}
    stage.wait(record(journal, [lost(routed)]))
    assert reserved([run], {run.pk: head(run)}) == {}
    again = replace(routed, n=1)
    stage.wait(intend(journal, [again]))
    assert reserved([run], {run.pk: head(run)}) == {run.pk: aside}
