"""Judges calls that people change before they approve: the newest question's version is what is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.system.crash.checker import Facts, Kind

Event = dict[str, Any]
TOOL = "changed"
# How people answer: unchanged, with a change, several at once, during an inquiry, or by a delegate who may be revoked.
MANNERS = ("plain", "change", "race", "ask", "hand")


def amendments(events: Iterable[Event]) -> Counter[str]:
    """Count per call the questions that a change ended."""
    return Counter(event["slot"] for event in events if event["kind"] == "PlanAmended")


def judge_changed(facts: Facts) -> Iterable[tuple[Kind, str]]:
    slots = {e["slot"] for e in facts.events if e["kind"] == "ApprovalRequested" and e["data"]["tool"] == TOOL}
    for slot in sorted(slots):
        yield from judge_call([event for event in facts.events if event["slot"] == slot])


def judge_call(told: Sequence[Event]) -> Iterable[tuple[Kind, str]]:
    fields = {x["data"]["approval_id"]: x for x in told if x["kind"] == "ApprovalRequested"}
    ended = Counter(x["data"]["approval_id"] for x in told if x["kind"] in ("ApprovalDecided", "PlanAmended"))
    what = f"the call {told[0]['slot']}"
    for approval_id, times in ended.items():
        if times > 1:
            yield "duplicate", f"{what}: question {approval_id} was ended {times} times"
    for change in (x for x in told if x["kind"] == "PlanAmended"):
        after = fields.get(change["data"]["next"])
        if after is None or after["seq"] != change["seq"] + 1:
            yield "lost", f"{what}: what it became at event {change['seq']} was not asked for with it"
    yield from _talked(what, told)
    for sent in (x for x in told if x["kind"] == "ToolInvoked"):
        yield from _sent(what, sent, fields, told)


def _sent(what: str, sent: Event, asked: dict[str, Event], told: Sequence[Event]) -> Iterable[tuple[Kind, str]]:
    before = [x for x in told if x["seq"] < sent["seq"]]
    if not (questions := [x for x in before if x["kind"] == "ApprovalRequested"]):
        yield "broken", f"{what} was sent, and nobody was asked"
        return
    own = [x for x in questions if x["data"]["queue"] == questions[0]["data"]["queue"]]
    newest = own[-1]["data"]["approval_id"]
    yes = [x for x in before if x["kind"] == "ApprovalDecided" and x["data"]["approval_id"] == newest]
    if [x["data"]["verdict"] for x in yes] != ["approved"]:
        yield "broken", f"{what} was sent, and its newest question was not approved"
    is_changed = any(x["kind"] == "PlanAmended" and x["data"]["next"] == newest for x in before)
    is_other = sent["data"]["executed_hash"] != sent["data"]["requested_hash"]
    if is_changed != is_other:
        yield "broken", f"{what}: {'what the node asked for' if is_changed else 'something else'} was sent"
    if sent["data"]["requested_hash"] != questions[0]["data"]["requested_hash"]:
        yield "broken", f"{what}: the journal forgot what the node had asked for"


_TALK = ("InquiryMade", "InquiryEnded", "ApprovalDelegated", "DelegationEnded")


def _talked(what: str, told: Sequence[Event]) -> Iterable[tuple[Kind, str]]:
    """Check that inquiries were answered once while open, and that delegates held the case when they decided."""
    question, held, over = set[int](), dict[int, str](), set[str]()
    for event in told:
        data = event["data"]
        match event["kind"]:
            case "ApprovalDecided":
                over.add(data["approval_id"])
                name = data["by"].partition(":")[2]
                if name.startswith("handed") and name not in held.values():
                    yield "broken", f"{what} was decided by {name}, who did not have it"
            case "PlanAmended":
                over.add(data["approval_id"])
            case "InquiryMade":
                question.add(data["n"])
            case "InquiryEnded" if data["n"] not in question:
                yield "duplicate", f"{what}: what was asked was answered or withdrawn twice, or never asked"
            case "InquiryEnded":
                question.discard(data["n"])
            case "ApprovalDelegated":
                held[data["n"]] = data["to"]
            case "DelegationEnded":
                if held.pop(data["n"], None) is None:
                    yield "duplicate", f"{what}: what was handed over was taken back twice"
        if event["kind"] in _TALK and data["approval_id"] in over:
            yield "broken", f"{what}: event {event['seq']} is about a question that was over"
