"""Judges a run with its children: each started and ended once, and was debited to its parent once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.system.crash.checker import COUNTED, ENDED, Expected, Facts, Finding, Kind, judge
from tests.system.crash.undone import expected_of_undoer, is_reopened, judge_undone, undoes

# Each child's effect, once.
CHILDS_EFFECTS = {"erp.create_vendor": 1}
NOBODY: Mapping[str, Sequence[Facts]] = {}


def judge_family(
    parent: Facts,
    children: Sequence[Facts],
    expected: Expected,
    childs: Mapping[str, int] = CHILDS_EFFECTS,
    *,
    below: Mapping[str, Sequence[Facts]] = NOBODY,
) -> list[Finding]:
    """Judge a parent with its children. `childs`: effects of each child; `below`: grandchildren."""
    found = judge(parent, expected)
    theirs = replace(expected, effects=childs, gates=0, denied={})
    for child in children:
        if undoes(child):
            found += judge_family(child, below.get(child.run_id, ()), expected_of_undoer(child, theirs))
            found += [Finding(kind, child.run_id, what) for kind, what in judge_undone(child, is_wanted=True)]
            continue
        found += judge(child, _failed(theirs, child) if child.run and child.run["state"] == "failed" else theirs)
    return found + [Finding(kind, parent.run_id, what) for kind, what in between(parent, children, expected)]


def _failed(theirs: Expected, child: Facts) -> Expected:
    """Return what a failed child does when a retried parent started another in its place."""
    is_done = any(row["executed"] for row in child.effects)
    return replace(theirs, state="failed", effects=theirs.effects if is_done else {})


def between(parent: Facts, children: Sequence[Facts], expected: Expected) -> Iterable[tuple[Kind, str]]:
    """Check that the journals of parent and children agree."""
    started = [event for event in parent.events if event["kind"] == "ChildStarted"]
    ends: dict[str, list[Mapping[str, Any]]] = {}
    for event in parent.events:
        if event["kind"] == "ChildEnded":
            ends.setdefault(event["data"]["child"], []).append(event["data"])
    ended = {child: value[-1] for child, value in ends.items()}
    for child, times in Counter(event["data"]["child"] for event in started).items():
        if times > 1:
            yield "duplicate", f"child {child} was started {times} times"
    known = {facts.run_id: facts for facts in children}
    for child, value in ends.items():
        # A reopened one has ended twice: completed, and then with all undone.
        before = ["completed"] if child in known and is_reopened(known[child]) else []
        if [end["state"] for end in value[:-1]] not in ([], before):
            yield "duplicate", f"the end of child {child} was told {len(value)} times"
    named = {event["data"]["child"] for event in started}
    chains, wrong = chained(children)
    yield from wrong
    for child in chains.keys() - named:
        yield "broken", f"run {child} says that it is a child, and nobody started it"
    for child in named - known.keys():
        yield "lost", f"child {child} was started, and there is no such run"
    lost = {(event["slot"]) for event in started if ended.get(event["data"]["child"], {}).get("state") == "failed"}
    renewed = [event for event in started if event["attempt"] > 0]
    if not {event["slot"] for event in renewed} <= lost:
        yield "broken", "a child was started again in the place of one that had not failed"
    if parent.run and parent.run["state"] == "completed" and len(started) - len(renewed) != expected.children:
        yield "broken", f"{len(started) - len(renewed)} children instead of {expected.children}"
    for child in named & chains.keys():
        chain = chains[child]
        run, last = chain[-1].run, ended.get(child)
        if not run or run["state"] not in ENDED:
            continue  # found as stuck already
        if last is None:
            yield "lost", f"child {child} has ended as {run['state']}, and its parent was not told"
            continue
        if last["state"] != run["state"]:
            yield "broken", f"child {child} is {run['state']}, and its parent was told {last['state']}"
        for name in COUNTED:
            used = sum(facts.run["usage"][name] for facts in chain)
            debited = sum(end[name] for end in ends[child])
            if debited != used:
                kind: Kind = "lost" if debited < used else "duplicate"
                yield kind, f"child {child} used {used} {name}, and {debited} were debited"


def chained(runs: Sequence[Facts]) -> tuple[dict[str, list[Facts]], list[tuple[Kind, str]]]:
    """Return runs with their continuations, by the first of each, and what is wrong between them."""
    chains: dict[str, list[Facts]] = {}
    wrong: list[tuple[Kind, str]] = []
    come = {facts.run_id: _event(facts, "RunCarriedOn") for facts in runs}
    for facts in sorted(runs, key=lambda facts: (come[facts.run_id] or {}).get("turn", 0)):
        entry = come[facts.run_id]
        chain = chains.setdefault(entry["first"] if entry else facts.run_id, [])
        if entry and (len(chain) != entry["turn"] or chain[-1].run_id != entry["origin"]):
            wrong.append(
                ("duplicate", f"run {facts.run_id} goes on from {entry['origin']}, and is not the one that does")
            )
        chain.append(facts)
    for chain in chains.values():
        for facts, successor in zip(chain, [*chain[1:], None], strict=True):
            gone = _event(facts, "RunRenewed") or _event(facts, "RunHandedOff")
            if gone is None and successor is None:
                continue
            if (
                gone is None
                or successor is None
                or gone["successor"] != successor.run_id
                or facts.run["state"] != "completed"
            ):
                wrong.append(
                    ("lost" if successor is None else "broken", f"run {facts.run_id} and its heir don't tell the same")
                )
    return chains, wrong


def _event(facts: Facts, kind: str) -> Mapping[str, Any] | None:
    return next((event["data"] for event in facts.events if event["kind"] == kind), None)
