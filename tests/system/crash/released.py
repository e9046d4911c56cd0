"""Judges starts under a ramp: each run stays on its version, and journal and ramp agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.system.crash.checker import Expected, Facts, Finding, moment

Row = Mapping[str, Any]
PLACES = 10_000
# The effects of a run of each version.
CALLS = {"from_version": 2, "to_version": 3}


@dataclass(frozen=True)
class Released:
    """An agent's ramps with all their shares; each start's run and key; the rows next to the journals."""

    ramps: Sequence[Row]
    starts: Sequence[Row]
    rows: Sequence[Row]


def expected_of_start(version: str, ramp: Row) -> Expected:
    side = "to_version" if version == ramp["to_version"] else "from_version"
    return Expected({"erp.create_vendor": CALLS[side]})


def judge_released(released: Released, facts: Mapping[str, Facts], acknowledged: Sequence[str]) -> Iterator[Finding]:
    """Find what is wrong. `acknowledged`: the runs whose starts were answered."""
    known = {start["run"] for start in released.starts}
    for run in acknowledged:
        if run not in known:
            yield Finding("lost", run, "its start was answered, and there is no such run")
    ramps = {ramp["id"]: ramp for ramp in released.ramps}
    rows = {row["run"]: row for row in released.rows}
    for start in released.starts:
        items = [event["data"] for event in facts[start["run"]].events if event["kind"] == "VersionAssigned"]
        yield from _stayed(start, facts[start["run"]])
        yield from _assigned(start, items, ramps, rows.pop(start["run"], None))
    for run in rows:
        yield Finding("broken", run, "a ramp counts a start of it, and there is no such run")
    yield from _sides(released.starts, facts)


def _stayed(start: Row, facts: Facts) -> Iterator[Finding]:
    """Check that a run's version is its first one, unless an event migrated it."""
    version = facts.events[0]["data"]["version"]
    for event in facts.events:
        version = event["data"]["to"].partition("@")[2] if event["kind"] == "RunMigrated" else version
    if (start["version"], start["graph_id"].partition("@")[2]) != (version, version):
        yield Finding("broken", start["run"], f"it is {start['graph_id']}, and its journal says {version}")


def _assigned(start: Row, told: Sequence[Row], ramps: Mapping[int, Row], row: Row | None) -> Iterator[Finding]:
    run, at = start["run"], moment(start["created_at"])
    during = [r for r in ramps.values() if r["made_at"] < at and (r["ended_at"] is None or at < r["ended_at"])]
    if len(told) != len(during):
        yield Finding("broken", run, f"{len(told)} versions assigned, while {len(during)} ramps were under way")
    if (row is not None) != bool(told):
        yield Finding("lost" if told else "broken", run, "the journal and the ramp's rows don't both tell of its start")
    for entry in told:
        ramp = ramps.get(entry["ramp"])
        if ramp is None:
            yield Finding("broken", run, f"it was assigned by a ramp {entry['ramp']} that there isn't")
            continue
        if ramp not in during:
            yield Finding("broken", run, f"ramp {ramp['id']} assigned it before its time or after its end")
        side = ramp["to_version"] if entry["is_new"] else ramp["from_version"]
        if start["version"] != side or (entry["from_version"], entry["to_version"]) != _versions(ramp):
            yield Finding("broken", run, f"it was assigned {side}, and is {start['version']}")
        if row is not None and any(row[name] != entry[name] for name in ("ramp", "is_new", "why", "place")):
            yield Finding("broken", run, f"its journal says {entry}, and the ramp's row {row}")
        if entry["share"] not in ramp["shares"] or not 0 <= entry["share"] <= PLACES:
            yield Finding("broken", run, f"it was assigned by a share of {entry['share']}, of {ramp['shares']}")
        if not 0 <= entry["place"] < PLACES or (entry["is_new"] and entry["place"] >= entry["share"]):
            yield Finding("broken", run, f"it went over at place {entry['place']} of {entry['share']}")
        if entry["why"] == "share" and entry["is_new"] != (entry["place"] < entry["share"]):
            yield Finding("broken", run, f"at place {entry['place']} of {entry['share']} it is on the wrong side")


def _versions(ramp: Row) -> tuple[str, str]:
    return ramp["from_version"], ramp["to_version"]


def _sides(starts: Sequence[Row], facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """Check that a key has one side on each ramp, and never moves back while the ramp only grows."""
    places: dict[tuple[str, int], int] = {}
    over: set[tuple[str, int]] = set()
    for start in sorted(starts, key=lambda start: moment(start["created_at"])):
        for event in facts[start["run"]].events:
            data = event["data"]
            if event["kind"] != "VersionAssigned" or data["key"] == "run":
                continue
            key = start["key"], data["ramp"]
            if places.setdefault(key, data["place"]) != data["place"]:
                yield Finding("broken", start["run"], f"the key {key} stands at two places")
            if data["why"] == "share" and not data["is_new"] and key in over:
                yield Finding("broken", start["run"], f"the key {key} came back to the older version")
            if data["is_new"]:
                over.add(key)
