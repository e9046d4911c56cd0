"""The judge of halts finds what it is there for, and cries wolf at nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cases import each_case
from tests.system.crash.halted import Stretch, judge_halted

START = datetime(2026, 1, 1, tzinfo=UTC)
SWEEPER = "system:sweeper"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def told(kind: str, seconds: float, **data: Any) -> dict[str, Any]:
    event = {"seq": int(seconds * 10), "kind": kind, "slot": "0.1/1", "attempt": 0}
    return event | {"at": at(seconds).isoformat(), "data": data}


def halted(scope: str, since: float = 10, until: float = 20, *, key: str = "t", confirmed: float = 12) -> Stretch:
    return Stretch(scope, key, at(since), at(until), at(confirmed))


def timer(due: float, ended: float, **more: Any) -> list[dict[str, Any]]:
    said = {"wait": "timer", "n": 0} | {name: x for name, x in more.items() if name != "by"}
    return [
        told("WaitOpened", 5, deadline=at(due).isoformat(), **said),
        told("WaitResolved", ended, by=more.get("by", SWEEPER), **said),
    ]


@each_case(
    ("event", "stretch"),
    [
        (told("ToolInvoked", 10, tool="keyed"), halted("tag")),
        (told("ToolRedispatched", 19, tool="keyed"), halted("version")),
        (told("ModelRouted", 11, model="scripted:thinker"), halted("tag")),
        (told("ToolInvoked", 10, tool="keyed"), halted("tool", key="keyed")),
        (told("ModelRouted", 11, model="scripted:thinker"), halted("provider", key="scripted")),
        (told("RunClaimed", 12), halted("tag")),
    ],
)
def test_what_begins_under_a_halt_is_found(event: dict[str, Any], stretch: Stretch) -> None:
    assert len(list(judge_halted([event], [stretch]))) == 1


@each_case(
    ("event", "stretch"),
    [
        (told("ToolInvoked", 9.99, tool="keyed"), halted("tag")),
        (told("ToolInvoked", 20, tool="keyed"), halted("tag")),
        (told("ToolReturned", 15, tool="keyed"), halted("tag")),
        (told("RunReleased", 15, reason="halt"), halted("tag")),
        (told("RunClaimed", 11), halted("tag")),
        (told("RunClaimed", 15), halted("tool", key="keyed")),
        (told("ToolInvoked", 15, tool="hooked"), halted("tool", key="keyed")),
        (told("ModelRouted", 15, model="other:thinker"), halted("provider", key="scripted")),
    ],
)
def test_what_is_not_under_it_or_was_on_its_way_is_sound(event: dict[str, Any], stretch: Stretch) -> None:
    assert list(judge_halted([event], [stretch])) == []


def test_what_ran_out_while_it_stood_still_is_found() -> None:
    assert len(list(judge_halted(timer(12, 15), [halted("tag")]))) == 1
    assert len(list(judge_halted(timer(22, 31.9), [halted("tag")]))) == 1, "ten seconds later it is due"
    assert list(judge_halted(timer(22, 32), [halted("tag")])) == []
    assert list(judge_halted(timer(22, 22), [halted("tool")])) == [], "a tool's halt stops no clock"


def test_halts_that_overlap_stop_the_clock_once() -> None:
    both = [halted("tag"), halted("version", 15, 25)]
    assert list(judge_halted(timer(22, 37), both)) == [] and list(judge_halted(timer(22, 36.9), both))


def test_what_a_person_or_the_calendar_ended_is_not_the_sweeper_s() -> None:
    assert list(judge_halted(timer(12, 15, by="user:olga"), [halted("tag")])) == []
    assert list(judge_halted(timer(12, 15, wait="pool"), [halted("tag")])) == []
