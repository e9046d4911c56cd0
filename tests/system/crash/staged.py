"""Judges calls that several people decide: no call without all approvals, by different people, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from tests.system.crash.steps import STAGES

if TYPE_CHECKING:
    from tests.system.crash.checker import Facts, Kind

Event = dict[str, Any]


def judge_stages(facts: Facts) -> Iterable[tuple[Kind, str]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in facts.events:
        if event["kind"] == "ApprovalRequested" and event["data"]["tool"] == "staged":
            groups[event["slot"]].append(event)
    for slot, questions in groups.items():
        yield from _case(slot, questions, [event for event in facts.events if event["slot"] == slot])


def staged_slots(facts: Facts) -> set[str]:
    items = [event for event in facts.events if event["kind"] == "ApprovalRequested"]
    return {event["slot"] for event in items if event["data"]["tool"] == "staged"}


def _case(slot: str, questions: list[Event], told: list[Event]) -> Iterable[tuple[Kind, str]]:
    """Check that a call passes all stages once, and again only where a policy requires more."""
    whole: list[int] = []  # where each fully approved case got its last approval
    cases = _cases(questions)
    for number, case in enumerate(cases):
        if number and (len(whole) < number or not _is_demanded(case[0], told)):
            yield "broken", f"{slot} was put to all of them again, which no policy demanded of a whole case"
        yield from _queues(slot, case)
        complete = yield from _yeses(slot, case, told)
        if complete == len(STAGES):
            whole.append(max(x["seq"] for x in told if x["kind"] == "ApprovalDecided" and _is_of(x, case[-1])))
    for sent in (x for x in told if x["kind"] == "ToolInvoked"):
        highest = max(1, sum(case[0]["seq"] < sent["seq"] for case in cases))
        if sum(at < sent["seq"] for at in whole) < highest:
            yield "broken", f"{slot} was sent before all {len(STAGES)} stages had said yes"


def _cases(questions: list[Event]) -> list[list[Event]]:
    cases: list[list[Event]] = []
    for question in questions:
        if not cases or (question["data"]["queue"] == STAGES[0][0] and len(cases[-1]) >= len(STAGES)):
            cases.append([])
        cases[-1].append(question)
    return cases


def _queues(slot: str, case: list[Event]) -> Iterable[tuple[Kind, str]]:
    queues = [question["data"]["queue"] for question in case]
    if queues != [queue for queue, _ in STAGES][: len(queues)]:
        yield "broken", f"{slot} was put to {', '.join(queues)}"


def _is_demanded(question: Event, told: list[Event]) -> bool:
    """Return whether the policies recorded with the question require one of its stages."""
    after = next((x for x in told if x["seq"] > question["seq"]), question)
    return after["kind"] == "PolicyApplied" and question["data"]["queue"] in after["data"]["queues"]


def _is_of(event: Event, question: Event) -> bool:
    return bool(event["data"]["n"] == question["data"]["n"])


def _yeses(slot: str, case: list[Event], told: list[Event]) -> Generator[tuple[Kind, str], None, int]:
    """Check one case's votes; return how many of its stages approved."""
    heard: set[int] = set()
    complete = 0
    for question, (_, quorum) in zip(case, STAGES, strict=False):
        number = question["data"]["n"]
        votes = [x for x in told if x["kind"] == "ApprovalVoted" and _is_of(x, question)]
        decided = [x for x in told if x["kind"] == "ApprovalDecided" and _is_of(x, question)]
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
    return complete
