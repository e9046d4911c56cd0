"""What several people decide: no call without all its yeses, each of another person, in order; no yes used twice.
Imports nothing of the app."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.crash.steps import STAGES

if TYPE_CHECKING:
    from tests.crash.checker import Facts, Kind

Event = dict[str, Any]


def judge_stages(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Each call of `staged`, by what its journal tells of it."""
    asked: dict[str, list[Event]] = defaultdict(list)
    for event in facts.events:
        if event["kind"] == "ApprovalRequested" and event["data"]["tool"] == "staged":
            asked[event["slot"]].append(event)
    for slot, questions in asked.items():
        yield from _case(slot, questions, [event for event in facts.events if event["slot"] == slot])


def staged_slots(facts: Facts) -> set[str]:
    """Where several people are asked."""
    asked = [event for event in facts.events if event["kind"] == "ApprovalRequested"]
    return {event["slot"] for event in asked if event["data"]["tool"] == "staged"}


def _case(slot: str, questions: list[Event], told: list[Event]) -> Iterable[tuple[Kind, str]]:
    queues = [question["data"]["queue"] for question in questions]
    if queues != [queue for queue, _ in STAGES][: len(queues)]:
        yield "broken", f"{slot} was put to {', '.join(queues)}"
    heard: set[int] = set()
    complete = 0
    for question, (_, quorum) in zip(questions, STAGES, strict=False):
        number = question["data"]["n"]
        votes = [x for x in told if x["kind"] == "ApprovalVoted" and x["data"]["n"] == number]
        decided = [x for x in told if x["kind"] == "ApprovalDecided" and x["data"]["n"] == number]
        if len(decided) > 1:
            yield "duplicate", f"question {number} of {slot} was decided {len(decided)} times"
        yes = []
        for vote in votes:
            people = {vote["data"]["person"], vote["data"]["principal"]} - {None}
            if people & heard:
                yield "duplicate", f"somebody has two words on {slot}: {vote['data']['by']}"
            heard |= people
            if vote["data"]["approval_id"] != question["data"]["approval_id"]:
                yield "broken", f"a vote of {vote['data']['by']} on {slot} is about another question"
            if decided and vote["seq"] > decided[0]["seq"]:
                yield "broken", f"{vote['data']['by']} voted on {slot} after it was decided"
            yes += [vote] if vote["data"]["verdict"] == "approve" else []
        verdicts = [x["data"]["verdict"] for x in decided]
        if (verdicts == ["approved"]) != (len(yes) >= quorum and verdicts != ["rejected"] and verdicts != ["expired"]):
            yield "broken", f"question {number} of {slot} has {len(yes)} of {quorum} yeses, and was decided: {verdicts}"
        if len(yes) > quorum:
            yield "duplicate", f"{len(yes)} yeses on question {number} of {slot}, which takes {quorum}"
        complete += verdicts == ["approved"]
    sent = [x for x in told if x["kind"] == "ToolInvoked"]
    if sent and complete < len(STAGES):
        yield "broken", f"{slot} was sent after {complete} of {len(STAGES)} stages"
