"""The judge of calls that several people decide finds what it is there for, and cries wolf at nothing."""

from __future__ import annotations

from typing import Any

from tests.cases import each_case
from tests.system.crash.staged import _case
from tests.system.crash.steps import STAGES

Event = dict[str, Any]
SLOT = "0.1/1"


def told(kind: str, **data: Any) -> Event:
    return {"kind": kind, "slot": SLOT, "data": data}


def question(n: int, stage: int, *voters: int, verdict: str = "approved", demanded: bool = False) -> list[Event]:
    queue, quorum = STAGES[stage]
    people = voters or tuple(10 * n + voter for voter in range(quorum))
    policy = [told("PolicyApplied", effect="require", queues=["legal"])] if demanded else []
    return [
        told("ApprovalRequested", n=n, approval_id=str(n), queue=queue, tool="staged"),
        *policy,
        *(
            told("ApprovalVoted", n=n, approval_id=str(n), by=f"user:{x}", person=x, principal=None, verdict="approve")
            for x in people
        ),
        told("ApprovalDecided", n=n, approval_id=str(n), verdict=verdict),
    ]


def found(*parts: list[Event]) -> list[str]:
    events = [{**event, "seq": n} for n, event in enumerate((x for part in parts for x in part), start=1)]
    questions = [x for x in events if x["kind"] == "ApprovalRequested"]
    return [what for _, what in _case(SLOT, questions, events)]


SENT = [told("ToolInvoked")]
FIRST = [question(0, 0), question(1, 1)]


def test_a_call_with_all_its_yeses_is_sound() -> None:
    assert found(*FIRST, SENT) == []


def test_a_policy_may_want_the_whole_case_shown_anew_and_the_same_people_answer() -> None:
    assert found(*FIRST, question(2, 0, 0, demanded=True), question(3, 1, 10, 11), SENT) == []


@each_case(
    "parts",
    [
        [question(0, 1), question(1, 0), SENT],
        [question(0, 0), SENT],
        [question(0, 0), question(1, 1, 5), SENT],
        [question(0, 0), question(1, 1, 0, 5), SENT],
        [*FIRST, question(2, 0), question(3, 1), SENT],  # nobody demanded it
        [*FIRST, question(2, 0, demanded=True), SENT],
        [*FIRST, question(2, 0, demanded=True), question(3, 0), SENT],
        [question(0, 0), question(1, 1, verdict="rejected"), question(2, 0, demanded=True), question(3, 1), SENT],
        [question(0, 0), question(1, 1, verdict="rejected"), question(2, 0, demanded=True), question(3, 1)],
        [*FIRST, question(2, 0, demanded=True), question(3, 1, 20, 6), SENT],
        [SENT, *FIRST],
        [SENT, question(0, 0)],
    ],
)
def test_what_is_sent_without_them_or_asked_for_no_reason_is_found(parts: list[list[Event]]) -> None:
    assert found(*parts)
