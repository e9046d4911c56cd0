"""Judges a run's messages and attributes by its journal."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.system.crash.checker import Facts, Kind


def judge_attributes(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Check that the run's attributes are the last ones in its journal, set once per step."""
    fields: dict[str, list[str]] = {}
    sets = [event for event in facts.events if event["kind"] == "AttributesSet"]
    for data in (event["data"] for event in sets):
        fields = {name: values for name, values in fields.items() if name not in data["named"]}
        for name, value in zip(data["names"], data["values"], strict=True):
            fields.setdefault(name, []).append(value)
    rows = {name: value if isinstance(value, list) else [value] for name, value in facts.run["attributes"].items()}
    if {name: [str(value) for value in values] for name, values in rows.items()} != fields:
        yield "broken", f"it is found by {rows}, and its journal set {fields}"
    slots = Counter((event["slot"], event["attempt"]) for event in sets if event["slot"])
    yield from (("duplicate", f"the attributes at {slot} were set again") for slot, times in slots.items() if times > 1)


def judge_messages(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Check that each message is handled once and in order, and a retry takes none from before the end."""
    came, handled = 0, 0
    for event in facts.events:
        if event["kind"] == "MessageReceived":
            came += 1
        elif event["kind"] in ("RunCompleted", "RunFailed", "RunCancelled"):
            handled = came
        elif event["kind"] == "MessageHandled":
            handled += 1
            if event["data"]["n"] != handled or handled > came or event["data"]["outcome"] != "answered":
                yield "duplicate", f"event {event['seq']} handles message {event['data']}, as the {handled}. of {came}"


def reopenings(facts: Facts) -> int:
    """Return how often a completed run was told by its parent to undo."""
    items = [event for event in facts.events if event["kind"] in ("RunCompleted", "UndoAsked")]
    return sum(
        end["kind"] == "RunCompleted" and then["kind"] == "UndoAsked" and then["data"]["by"].startswith("run:")
        for end, then in itertools.pairwise(items)
    )
