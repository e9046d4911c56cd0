"""The judge of rules finds what it is there for, and cries wolf at nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cases import each_case
from tests.system.crash.policed import QUEUE, RULE, Turn, asked_by_rule, judge_policed

START = datetime(2026, 1, 1, tzinfo=UTC)
TURN = Turn(START, START + timedelta(seconds=1), requires=True, tool="keyed")
SAID = {"a": ["whole"]}


def told(kind: str, seconds: float, **data: Any) -> dict[str, Any]:
    at = (START + timedelta(seconds=seconds)).isoformat()
    return {"seq": int(seconds * 10), "kind": kind, "slot": "0.1/1", "attempt": 0, "at": at, "data": data}


def story(
    *, verdict: str = "approved", effect: str = "require", at: float = 5, tool: str = "keyed", queue: str = QUEUE
) -> list[dict[str, Any]]:
    return [
        told("ApprovalRequested", 2, approval_id="a", queue=queue, rule=RULE, tool=tool),
        told("ApprovalDecided", 3, approval_id="a", verdict=verdict),
        told("ToolInvoked", at, tool=tool, grant="0.1/1"),
        told("PolicyApplied", at, effect=effect),
    ]


def test_a_call_with_its_yes_is_sound() -> None:
    assert list(judge_policed(story(), [TURN], SAID)) == [] and asked_by_rule(story()) == {"a"}


def test_a_question_of_the_agents_own_at_the_same_queue_is_not_the_rules() -> None:
    own = told("ApprovalRequested", 2, approval_id="b", queue=QUEUE, rule="Legal reads every contract.", tool="keyed")
    assert asked_by_rule([own, *story()]) == {"a"}


@each_case(
    "events",
    [
        story(verdict="rejected"),
        story(queue="finance_po"),
        story(effect="allow"),
        story(effect="deny"),
        story()[:3],
        story()[2:],
        [*story(), told("ToolRedispatched", 6, tool="keyed")],
    ],
)
def test_a_call_without_its_yes_or_its_judgement_is_found(events: list[dict[str, Any]]) -> None:
    assert list(judge_policed(events, [TURN], SAID))


@each_case(
    ("proof", "manner", "is_enough"),
    [
        ("", "key", True),
        ("fresh", "password", True),
        ("factor typed", "whole", True),
        ("typed", "stale", True),
        ("fresh", "stale", False),
        ("fresh", "key", False),
        ("factor", "password", False),
        ("typed", "blank", False),
        ("fresh typed", "blank", False),
    ],
)
def test_a_call_on_a_yes_that_showed_too_little_is_found(proof: str, manner: str, is_enough: bool) -> None:
    turn = replace(TURN, proof=proof)
    assert (list(judge_policed(story(), [turn], {"a": [manner]})) == []) is is_enough
    assert list(judge_policed(story(), [turn], {})), "a yes that nobody said"


def test_what_left_before_or_is_about_another_tool_needed_none() -> None:
    assert list(judge_policed(story(at=-1)[2:3], [TURN])) == []
    assert list(judge_policed(story(at=0.5)[2:3], [TURN])) == [], "while it was being changed either was right"
    assert list(judge_policed(story(tool="pure")[2:3], [TURN])) == []
    retired = Turn(START + timedelta(seconds=3), START + timedelta(seconds=4), requires=False, tool="keyed")
    assert list(judge_policed(story()[2:3], [TURN, retired])) == []
