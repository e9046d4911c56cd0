from __future__ import annotations

from typing import Any

import pytest

from ledger import events as e
from runs.engine.budget import NOTHING_USED, Budget
from runs.engine.steps.spending import reserved_by
from runs.journal.reader import tape_of
from runs.models import Run
from runs.queries.spending import reserved
from runs.services import lifecycle
from runs.services.budgets.asked import StaleBudget, budget_wait_text
from runs.services.budgets.raising import set_budget
from tests.integration.runs.situations import NOT_ENDED, Situations
from tests.integration.runs.stage import Stage, at_once, dump, events, fresh, head, kinds, overrides
from tests.integration.runs.test_budgets import WHY, asked, at_cap, in_doubt, is_sound, ordering, raised, start
from tests.world import OLGA, Outside, Toolbox


def still_asks(run: Run, stage: Stage) -> dict[str, Any]:
    assert stage.drive() == "idle" and str(fresh(run).state) == "paused" and "RunResumed" not in kinds(run)
    is_sound(run)
    (wait,) = asked(run)
    return budget_wait_text(wait)


def test_too_little_is_on_record_and_keeps_the_question_open(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = at_cap(stage, tools, "order", "order", "order", tool_calls=1)
    (before,) = asked(run)
    for most in (0, 1):
        raised(run, tool_calls=most)
        found = still_asks(run, stage)
        assert (found["most"], found["used"], found["wanted"], found["enough"]) == (most, 1, 1, {"tool_calls": 2})
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
    found = still_asks(run, stage)
    assert found["resource"] == "steps" and found["enough"] == {"steps": 2, "tool_calls": 2}
    raised(run, tool_calls=9)
    assert still_asks(run, stage)["enough"] == {"steps": 2}
    raised(run, steps=2)
    assert stage.drive() == "completed"
    is_sound(run)


def test_what_is_set_aside_for_unknown_outcomes_counts(stage: Stage, tools: Toolbox) -> None:
    run = in_doubt(stage, tools)
    detail = asked(run)[0].detail
    assert (detail["used"], detail["reserved"], detail["enough"]) == (0, 1, {"tool_calls": 2})
    raised(run, tool_calls=1)
    assert still_asks(run, stage)["enough"] == {"tool_calls": 2}
    raised(run, tool_calls=2)
    assert not asked(run)
    is_sound(run)


# --- the state seen ---------------------------------------------------------------------------------------------------


def seen(run: Run, was: dict[str, Any], **caps: Any) -> Run:
    return set_budget(run.id, Budget(**caps), by=OLGA, justification=WHY, seen=Budget(**was))


def test_who_saw_other_caps_undoes_no_raise(stage: Stage, tools: Toolbox) -> None:
    run = start(ordering(tools, "order"), tool_calls=1, steps=9)
    raised(run, tool_calls=100)
    before = dump()
    with pytest.raises(StaleBudget) as refused:
        seen(run, {"tool_calls": 1, "steps": 9}, tool_calls=2)
    assert "tool calls was 1, is 100" in refused.value.detail and dump() == before
    assert refused.value.extra["caps"]["tool_calls"] == 100
    assert [problem["field"] for problem in refused.value.extra["errors"]] == ["budget.tool_calls"]
    seen(run, {"tool_calls": 100, "usd": None}, tool_calls=2)
    assert head(run).cap_tool_calls == 2
    is_sound(run)


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


# --- an additional pause by a person ----------------------------------------------------------------------------------


def test_a_pause_and_a_raise_at_once_leave_it_paused_or_going(stage: Stage, tools: Toolbox) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    at_once(lambda: lifecycle.pause(run.id, by=OLGA, justification=WHY), lambda: raised(run, tool_calls=9))
    is_sound(run)
    assert str(fresh(run).state) == "paused" and not asked(run)
    lifecycle.resume(run.id, by=OLGA, justification=WHY)
    assert stage.drive() == "completed"
    is_sound(run)


# --- reserved amounts in lists ----------------------------------------------------------------------------------------


@pytest.mark.every(4)
@pytest.mark.parametrize("situation", NOT_ENDED)
def test_what_is_set_aside_is_what_a_worker_would_count(stage: Stage, tools: Toolbox, situation: str) -> None:
    run = fresh(Situations(stage, tools).make(situation))
    counted = sum((usage for _, usage in reserved_by(tape_of(run))), NOTHING_USED)
    assert reserved([run], {run.pk: head(run)}).get(run.pk, NOTHING_USED) == counted
