"""Judges what two people settle, and what the system is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.system.crash.checker import Facts, Kind

Event = dict[str, Any]
_NO_NEWS = ("OutcomeProposed", "OutcomeWithdrawn", "UpstreamAsked")


def judge_settled(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Check that agreements match another's proposal without news in between, and askings have at most one answer."""
    fields: dict[tuple[Any, ...], Event] = {}
    open_asks: dict[tuple[Any, ...], int] = {}
    news: dict[str | None, int] = {}
    for event in facts.events:
        place, data = (event["slot"], event["attempt"]), event["data"]
        match event["kind"]:
            case "OutcomeProposed":
                fields[*place, data["n"]] = event
            case "OutcomeWithdrawn":
                fields.pop((*place, data["n"]), None)
            case "UpstreamAsked":
                if place in open_asks:
                    yield "duplicate", f"event {event['seq']} asks for what is to be asked already"
                open_asks[place] = data["n"]
            case "UpstreamTold":
                if open_asks.pop(place, None) != data["n"]:
                    yield "broken", f"event {event['seq']} answers what nobody asked"
            case "ToolReconciled":
                if (n := event.get("payload", {}).get("proposal")) is not None:
                    yield from _agreement(event, fields.get((*place, n)), news.get(event["slot"], 0))
        if event["kind"] not in _NO_NEWS and data.get("answer") != "nothing":
            news[event["slot"]] = event["seq"]
    settled = {(e["slot"], e["attempt"]) for e in facts.events if e["kind"] in ("ToolReconciled", "CallbackReceived")}
    for place in open_asks.keys() - settled:
        if facts.run["state"] == "completed":
            yield "lost", f"the other side was never asked what became of the call at {place[0]}"


def _agreement(event: Event, first: Event | None, news: int) -> Iterable[tuple[Kind, str]]:
    what = f"event {event['seq']} settles a call as if by two"
    if first is None:
        yield "broken", f"{what}, and nobody's word stands"
    elif first["data"]["by"] == event["data"]["by"]:
        yield "broken", f"{what}, and both are one"
    elif (first["data"]["verdict"], first["data"]["question"]) != (event["data"]["verdict"], event["data"]["n"]):
        yield "broken", f"{what}, and the first said otherwise"
    elif news > first["seq"]:
        yield "broken", f"{what}, and more was told of the call at event {news}"
