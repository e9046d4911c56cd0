"""Judges calls under standing approvals: each is answered once, and no grant is used more often than allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.system.crash.changed import judge_call

if TYPE_CHECKING:
    from tests.system.crash.checker import Facts, Kind

Event = dict[str, Any]
TOOL, QUEUE = "again", "finance_po"
# How people answer: a plain approval; a standing one; not at all, so that a grant does if there is one; all at once;
# and with all grants revoked just then.
MANNERS = ("plain", "allow", "wait", "race", "revoke")
TIMES = 2


def _standing(event: Event) -> dict[str, Any]:
    value = event.get("payload", {}).get("standing") if event["kind"] == "ApprovalDecided" else None
    return value if isinstance(value, dict) else {}


def lapsed(events: Iterable[Event]) -> Counter[str]:
    """Count per gate the approvals by a revoked grant, after which another question followed."""
    found, answered = Counter[str](), dict[str, bool]()
    for event in events:
        if event["kind"] == "ApprovalRequested" and answered.pop(event["slot"], False):
            found[event["slot"]] += 1
        if event["kind"] == "ApprovalDecided":
            answered[event["slot"]] = "grant" in _standing(event)
    return found


def judge_again(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Judge each call of `again`, and the grants given and used."""
    slots = {e["slot"] for e in facts.events if e["kind"] == "ApprovalRequested" and e["data"]["tool"] == TOOL}
    for slot in sorted(slots):
        yield from judge_call([event for event in facts.events if event["slot"] == slot])
    given, used = 0, Counter[tuple[int, int]]()
    for event in facts.events:
        found = _standing(event)
        if "again" in found:
            given += found["again"]["times"]
        if "grant" not in found:
            continue
        used[found["grant"], found["use"]] += 1
        if used.total() > given:
            yield "broken", f"event {event['seq']} is one yes more than was allowed"
        if used[found["grant"], found["use"]] > 1 or not 1 <= found["use"] <= TIMES:
            yield "duplicate", f"event {event['seq']}: use {found['use']} of standing grant {found['grant']}"
