"""Judges questions that nobody answered in time: escalated once or reminded, and never approved by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.system.crash.checker import Facts, Kind

Event = dict[str, Any]
FURTHER_TO = "legal"  # the escalation queue of `further`
ROLES = {"finance_po": "approver_finance", FURTHER_TO: "approver_legal"}
WORDS = {"further": "escalate", "patient": "remind"}
# How people answer: at once, just as the time runs out, or after that.
MANNERS = ("early", "race", "after")


def judge_late(facts: Facts) -> Iterable[tuple[Kind, str]]:
    for event in facts.events:
        if event["kind"] == "ApprovalRequested" and event["data"]["tool"] in WORDS:
            yield from judge_question(event, facts.events)


def judge_question(asked: Event, events: Sequence[Event]) -> Iterable[tuple[Kind, str]]:
    approval_id, what = asked["data"]["approval_id"], f"{asked['data']['tool']} at {asked['slot']}"
    matching = [x for x in events if x["data"].get("approval_id") == approval_id and x is not asked]
    timed = [x for x in matching if x["kind"] == "ApprovalTimed"]
    word = timed[0]["data"]["on_timeout"] if timed else "reject"
    if len(timed) > 1 or any(x["seq"] != asked["seq"] + 1 for x in timed):
        yield "duplicate", f"{what}: its time was settled {len(timed)} times, or not when it was put"
    if timed and word != WORDS[asked["data"]["tool"]]:
        yield "broken", f"{what}: its gate says {WORDS[asked['data']['tool']]}, and its terms {word}"
    went = [x for x in matching if x["kind"] == "ApprovalEscalated"]
    decided = [x for x in matching if x["kind"] == "ApprovalDecided"]
    yield from _went(what, word, asked, went)
    yield from _reminded(what, word, asked, [x for x in matching if x["kind"] == "ApprovalReminded"])
    if len(decided) > 1:
        yield "duplicate", f"{what} was decided {len(decided)} times"
    for end in decided:
        yield from _decided(what, word, asked, went, end)
        if late := [
            x["kind"] for x in (*went, *matching) if x["seq"] > end["seq"] and x["kind"].startswith("Approval")
        ]:
            yield "broken", f"{what}: {late[0]} after it was decided"


def _went(what: str, word: str, asked: Event, went: list[Event]) -> Iterable[tuple[Kind, str]]:
    if len(went) > 1:
        yield "duplicate", f"{what} went further {len(went)} times"
    for one in went:
        if word != "escalate" or one["data"]["to"] != FURTHER_TO:
            yield "broken", f"{what}: it went to {one['data']['to']}, whom its terms do not name"
        if _moment(one["at"]) < _moment(asked["data"]["deadline"]):
            yield "broken", f"{what}: it went further before its time had run out"
        if _moment(one["data"]["deadline"]) <= _moment(one["at"]):
            yield "broken", f"{what}: it went where nobody has any time"


def _reminded(what: str, word: str, asked: Event, reminded: list[Event]) -> Iterable[tuple[Kind, str]]:
    due = _moment(asked["data"]["deadline"])
    for one in reminded:
        if word != "remind":
            yield "broken", f"{what}: people were reminded, which no event requested"
        if _moment(one["at"]) < due:
            yield "duplicate", f"{what}: people were reminded again before it was due"
        due = _moment(one["data"]["deadline"])


def _decided(what: str, word: str, asked: Event, went: list[Event], end: Event) -> Iterable[tuple[Kind, str]]:
    verdict, role = end["data"]["verdict"], end["data"]["role"]
    if verdict == "expired" and (word == "remind" or (word == "escalate" and not went)):
        yield "lost", f"{what} expired, and was to {word}"
    if verdict == "expired" and end["data"]["by"] != "system:sweeper":
        yield "broken", f"{what} was ended by {end['data']['by']}"
    places = [asked["data"]["queue"], *(x["data"]["to"] for x in went if x["seq"] < end["seq"])]
    if verdict == "approved" and role not in {ROLES[queue] for queue in places}:
        yield "broken", f"{what} was approved as {role}, who was not asked by then"


def _moment(text: Any) -> datetime:
    return text if isinstance(text, datetime) else datetime.fromisoformat(text)
