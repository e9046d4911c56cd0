from __future__ import annotations

from collections.abc import Callable

import pytest

from durableagents import BusinessFailure
from ledger import events as e
from ledger.append import append
from runs.models import Run
from runs.services import lifecycle
from runs.services.families.reopening import FAMILY
from tests.integration.runs.families_undone import all_sound, everything, family
from tests.integration.runs.stage import Stage, events, fresh, problems
from tests.unit.engine.undoings import Reversible, failing, names
from tests.world import OLGA, Outside


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


def begun(run: Run) -> e.UndoBegun:
    return events(run, e.UndoBegun)[0]


Forged = Callable[[Run], e.Event]
FORGED: dict[str, tuple[Forged, str]] = {
    "undone twice": (
        lambda run: e.EffectUndone(slot="0.3/77", of_run="", of_slot="0.1/1", of_attempt=0, tool="book"),
        "EffectUndone: the outcome for slot 0.1/1, attempt 0 is already recorded in event",
    ),
    "left as well": (
        lambda run: e.EffectLeft(slot="0.3/77", of_run="", of_slot="0.1/1", of_attempt=0, tool="book", by="user:olga"),
        "EffectLeft: the outcome for slot 0.1/1, attempt 0 is already recorded in event",
    ),
    "never planned": (
        lambda run: e.EffectUndone(slot="0.3/77", of_run="", of_slot="0.9/9", of_attempt=0, tool="book"),
        "EffectUndone: slot 0.9/9, attempt 0 was not in the plan",
    ),
    "left and never planned": (
        lambda run: e.EffectLeft(slot="0.3/77", of_run="", of_slot="0.9/9", of_attempt=0, tool="book", by="user:olga"),
        "EffectLeft: slot 0.9/9, attempt 0 was not in the plan",
    ),
    "of another run": (
        lambda run: e.EffectUndone(slot="0.3/77", of_run=str(run.pk), of_slot="0.1/1", of_attempt=0, tool="book"),
        "was not in the plan",
    ),
    "planned twice": (begun, "UndoBegun: the undo had already begun"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_did_not_happen_is_named(stage: Stage, tools: Reversible, name: str) -> None:
    run = stage.start(failing(tools, [["book"], ["post"]]))
    assert stage.settle(run) == "failed" and problems(run) == []
    forged, named = FORGED[name]
    append(run.pk, forged(run), by=FAMILY)
    assert any(named in problem for problem in problems(run)), problems(run)


def test_an_effect_that_nobody_saw_to_is_named(stage: Stage, tools: Reversible, outside: Outside) -> None:
    outside.trouble("unpost", BusinessFailure("too late", code="late"))
    run = stage.start(failing(tools, [["book", "post"]]))
    assert stage.settle(run) == "parked" and problems(run) == []
    append(run.pk, e.RunFailed(code="no_luck", payload={"message": "", "undo": {}}), by=FAMILY)
    found = problems(run)
    for slot in ("0.1/1", "0.1/2"):
        named = f"RunFailed: no outcome is recorded for slot {slot}, attempt 0, which was to be undone"
        assert any(named in problem for problem in found), found
    assert any("its summary of the undo differs from the recorded outcomes" in problem for problem in found)


def test_a_run_that_never_began_to_undo_undid_nothing(stage: Stage, tools: Reversible) -> None:
    run = stage.start(failing(tools, [["book"]], on_failure="leave"))
    assert stage.settle(run) == "failed"
    append(run.pk, e.EffectUndone(slot="0.1/9", of_run="", of_slot="0.1/1", of_attempt=0, tool="book"), by=FAMILY)
    assert any("the undo had not begun" in problem for problem in problems(run))


def test_families_are_sound_with_it(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools, "ok", "wait", "fail"))
    everything(stage)
    lifecycle.cancel(run.pk, by=OLGA, justification="no more", effects="undo")
    everything(stage)
    assert fresh(run).state == "cancelled"
    assert names(outside).count("book") == names(outside).count("unbook") == 3
    all_sound()
