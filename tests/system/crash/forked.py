"""Judges forks: what was sent again was approved again, what was inherited was not, the origin is unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.system.crash.checker import Expected, Facts, Kind
from tests.system.crash.steps import EFFECTS, GATED
from tests.system.crash.truth import refuted

FORK, START_AGAIN = "fork", "start_again"
AGAIN, ON_RECORD, NO = "do_it_again", "take_what_is_on_record", "no"
_ENDS = ("RunCompleted", "RunFailed", "RunCancelled")
# What may follow the end of a run: news of its forks, late results, and the ends of its open calls.
_AFTER_THE_END = frozenset({"ForkMade", "CallbackReceived", "CallbackArrivedLate", "ToolAnsweredLate", "ChildEnded"})
# The effect of a call of each tool.
TOOLS = EFFECTS | {"book": "erp.create_vendor"}
CHILD = "child"


@dataclass(frozen=True)
class Asked:
    """A requested fork: how, and at which visit (0: from the input)."""

    how: str
    visit: int


@dataclass
class _Words:
    """People's verdicts on a fork's calls: by slot, the event."""

    yes: dict[str, int] = field(default_factory=dict)
    no: dict[str, int] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Facts) -> _Words:
        words = cls()
        for event in facts.events:
            payload = event.get("payload") or {}
            if event["kind"] == "WaitOpened" and event["data"]["wait"] == "input":
                words.tools[event["slot"]] = payload.get("call") or ""
            if event["kind"] == "InputAnswered" and isinstance(answer := payload.get("answer"), dict):
                known = {AGAIN: words.yes, NO: words.no}.get(answer.get("decision", ""))
                if known is not None:
                    known.setdefault(event["slot"], event["seq"])
        return words


def left_of(steps: Sequence[str], visit: int) -> Sequence[str]:
    """Return the steps from the beginning of a visit on: each hop but the last begins another."""
    hops = [n for n, step in enumerate(steps) if step == "hop"]
    return steps[hops[visit - 2] + 1 :] if visit > 1 else steps


def expected_of_fork(facts: Facts, rest: Expected) -> Expected:
    """Return the expected effects of a fork; `rest` is what its job does from that point on."""
    effects, gates, children, words = Counter(rest.effects), rest.gates, rest.children, _Words.of(facts)
    taken = [(event["slot"], event["data"]["tool"]) for event in facts.events if event["kind"] == "AnswerTakenOver"]
    # A person who changed a call at its gate is asked again whether it may be repeated, and may take over the recorded
    # result.
    gated = {event["slot"] for event in facts.events if event["kind"] == "ApprovalRequested"}
    for slot, tool in (*taken, *((slot, words.tools.get(slot, "")) for slot in words.no)):
        if tool == CHILD:
            children -= 1
        else:
            effects[TOOLS.get(tool, tool)] -= 1
            gates -= tool in GATED and slot not in gated
    return replace(rest, effects=effects, gates=gates, children=children)


def judge_forked(facts: Facts, origin: Facts, asked: Asked) -> Iterator[tuple[Kind, str]]:
    yield from _told(facts, origin, asked)
    begun = next((event["data"] for event in facts.events if event["kind"] == "RunForked"), None)
    if begun is None:
        return
    yield from _asked_about(facts, origin, begun["at_seq"])
    yield from _taken(facts, origin, begun["at_seq"])
    ours, theirs = ({row["key"] for row in each.ledger if row["key"]} for each in (facts, origin))
    if ours & theirs:
        yield "broken", f"it sends under keys of run {origin.run_id}: {sorted(ours & theirs)}"


def judge_origin(origin: Facts) -> Iterator[tuple[Kind, str]]:
    """Check that nothing more happens to a run that had ended before it was forked."""
    has_ended = has_fork = False
    for event in origin.events:
        has_ended = (has_ended or event["kind"] in _ENDS) and (has_fork or event["kind"] != "RunRetried")
        if has_ended and has_fork and event["kind"] not in _AFTER_THE_END:
            yield "broken", f"event {event['seq']}, {event['kind']}: it had ended, and another run was made of it"
        has_fork |= has_ended and event["kind"] == "ForkMade"


def _told(facts: Facts, origin: Facts, asked: Asked) -> Iterator[tuple[Kind, str]]:
    """Check that both journals record the fork once, in the right place."""
    begun = [event for event in facts.events if event["kind"] == "RunForked"]
    made = [e["data"] for e in origin.events if e["kind"] == "ForkMade" and e["data"]["fork"] == facts.run_id]
    if [event["data"]["origin"] for event in begun] != [origin.run_id] or begun[0]["seq"] > 4:
        yield "broken", f"its journal does not begin as that of a fork of run {origin.run_id}"
    for data in [*(event["data"] for event in begun), *made]:
        if (data["how"], data["visit"]) != (asked.how, asked.visit):
            yield "broken", f"{data['how']} at visit {data['visit']}, and {asked.how} at {asked.visit} was asked for"
    if len(made) != 1:
        yield ("duplicate" if made else "lost"), f"run {origin.run_id} says {len(made)} times that it was made of it"


def _asked_about(facts: Facts, origin: Facts, after: int) -> Iterator[tuple[Kind, str]]:
    """Check that possible repeats need an approval and none follows a denial."""
    words, fenced, is_living = _Words.of(facts), _done(origin, after), _was_living(facts, origin)
    for event in facts.events:
        if event["kind"] == "UndoBegun":
            return  # from here on it handles its own effects
        tool, slot = _leaves(event), event["slot"]
        if not tool:
            continue
        if slot in words.no:
            yield "broken", f"event {event['seq']}: {tool} at {slot} goes out, and somebody said no"
        if (is_living or tool in fenced) and words.yes.get(slot, event["seq"]) >= event["seq"]:
            yield "duplicate", f"event {event['seq']}: {tool} at {slot} goes out again, and nobody has said that it may"


def _taken(facts: Facts, origin: Facts, after: int) -> Iterator[tuple[Kind, str]]:
    """Check that each result taken over is one the origin got after the point, by the same tool, for one call."""
    sent = {event["slot"] for event in facts.events if _leaves(event)}
    done = {place for places in _done(origin, after).values() for place in places}
    taken = [event for event in facts.events if event["kind"] == "AnswerTakenOver"]
    for event in taken:
        data = event["data"]
        place = data["of_slot"], data["of_attempt"]
        if data["of_run"] != origin.run_id or place not in done:
            yield "broken", f"the call at {event['slot']} was given what run {data['of_run']} never did at {place}"
        if event["slot"] in sent:
            yield "duplicate", f"the call at {event['slot']} was given what is on record, and went out"
    for place, times in Counter((x["data"]["of_slot"], x["data"]["of_attempt"]) for x in taken).items():
        if times > 1:
            yield "duplicate", f"what was done at {place} stands for {times} calls"


def _was_living(facts: Facts, origin: Facts) -> bool:
    is_over = False
    for event in origin.events:
        if event["kind"] == "ForkMade" and event["data"]["fork"] == facts.run_id:
            return not is_over
        is_over = (is_over or event["kind"] in _ENDS) and event["kind"] != "RunRetried"
    return False


def _leaves(event: dict[str, Any]) -> str:
    """Return the tool or child name of an event that may have an effect."""
    if event["kind"] == "ChildStarted":
        return f"{CHILD}:{event['data']['agent'].partition('@')[0]}"
    is_effect = event["kind"] == "ToolInvoked" and event["data"]["replay_class"] != "pure"
    return str(event["data"]["tool"]) if is_effect else ""


def _done(origin: Facts, after: int) -> dict[str, set[tuple[str, int]]]:
    """Return the confirmed effects of a run after an event, by tool."""
    items = {(row["slot"], row["attempt"]) for row in origin.ledger if row["fact"] in ("committed", "reconciled")}
    happened = items - refuted(origin.events)
    found: dict[str, set[tuple[str, int]]] = {}
    for event in origin.events:
        tool, call = _leaves(event), (event["slot"], event["attempt"])
        if tool and event["seq"] > after and (call in happened or event["kind"] == "ChildStarted"):
            found.setdefault(tool, set()).add(call)
    return found
