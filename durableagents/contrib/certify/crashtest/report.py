"""Verdicts and reports of crash tests, for people who sign them and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from durableagents.contrib.certify.crashtest.effects import Effect

Verdict = Literal["once", "asked", "doubled", "lost", "not reached"]
BAD: frozenset[Verdict] = frozenset({"doubled", "lost"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the ledger, with the verdict of its reconciliation."""

    slot: str
    attempt: int
    fact: str
    tool: str
    key: str | None
    verdict: str = ""


@dataclass(slots=True)
class CaseResult:
    """The result of one run: crash point, end and verdict."""

    tool: str
    point: str
    run: str
    state: str = ""
    was_killed: bool = False
    seconds: float = 0.0
    asked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    verdict: Verdict = "once"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    result: CaseResult, entries: Sequence[Entry], effects: Iterable[Effect], *, ends: str, expected: Counter[str]
) -> None:
    """Find the effects that a run duplicated or lost.

    `ends` is the end state of the run without a crash, and `expected` the number of its effects by tool.
    """
    mine = effects_of_run(result.run, entries, effects)
    result.effects = dict(Counter(tool for tool, _ in mine))
    doubled, lost = _by_call(entries, mine)
    for tool in sorted(expected.keys() | result.effects.keys()):
        count, wanted = result.effects.get(tool, 0), expected[tool]
        if count > wanted and not any(tool in text for text in doubled):
            doubled.append(f"{tool} had {count} effects, and {wanted} in the run without a crash")
        if count < wanted and result.state == ends and not any(tool in text for text in lost):
            lost.append(f"{tool} had {count} effects, and {wanted} in the run without a crash")
    if result.state != ends:
        lost.append(f"the run is {result.state or 'missing'}, the run without a crash {ends}")
    result.problems += [*doubled, *lost]
    if doubled:
        result.verdict = "doubled"
    elif lost or result.problems:
        result.verdict = "lost"
    elif not result.was_killed and result.point:
        result.verdict = "not reached"
    else:
        result.verdict = "asked" if result.asked else "once"


def effects_of_run(run: str, entries: Sequence[Entry], effects: Iterable[Effect]) -> list[tuple[str, Effect]]:
    """Return the effects of a run, each with its tool."""
    keys = {entry.key: entry.tool for entry in entries if entry.key}
    found = []
    for effect in effects:
        if effect.key is not None and effect.key in keys:
            found.append((keys[effect.key], effect))
        elif effect.run == run and effect.key not in keys and effect.tool in {entry.tool for entry in entries}:
            found.append((effect.tool, effect))
    return found


def find_effect(slot: str, attempt: int, entries: Sequence[Entry], mine: Sequence[tuple[str, Effect]]) -> Effect | None:
    """Return the effect of a call with unknown outcome; None if there is none.

    This is the effect with the call's key or, if the call has none, any effect that belongs to no other call.
    """
    call = next(each for each in entries if (each.slot, each.attempt, each.fact) == (slot, attempt, "pending"))
    if call.key is not None:
        return next((effect for _, effect in mine if effect.key == call.key), None)
    of_tool = [effect for tool, effect in mine if tool == call.tool and effect.key is None]
    known = {(e.slot, e.attempt) for e in entries if e.tool == call.tool and _is_done(e)}
    return of_tool[-1] if len(of_tool) > len(known) else None


def _is_done(entry: Entry) -> bool:
    return entry.fact == "committed" or (entry.fact == "reconciled" and entry.verdict == "happened")


def _by_call(entries: Sequence[Entry], mine: Sequence[tuple[str, Effect]]) -> tuple[list[str], list[str]]:
    """Return calls with several effects, and recorded calls without any.

    Effects are matched by key, or counted by tool if there are no keys.
    """
    doubled, lost = [], []
    by_key = Counter(effect.key for _, effect in mine if effect.key is not None)
    calls = {(entry.slot, entry.tool) for entry in entries}
    unkeyed: Counter[str] = Counter()
    for slot, tool in sorted(calls):
        of_slot = [entry for entry in entries if entry.slot == slot]
        keys = {entry.key for entry in of_slot if entry.key}
        is_done = any(map(_is_done, of_slot))
        if not keys:
            unkeyed[tool] += is_done
            continue
        count = sum(by_key[key] for key in keys)
        if count > 1:
            doubled.append(f"{tool} at {slot} had {count} effects")
        if count == 0 and is_done:
            lost.append(f"{tool} at {slot} is recorded as done, but had no effect")
    for tool, done in sorted(unkeyed.items()):
        count = sum(1 for each, effect in mine if each == tool and effect.key is None)
        if count > done:
            doubled.append(f"{tool} had {count} effects, and {done} are recorded")
        if count < done:
            lost.append(f"{tool} had {count} effects, and {done} are recorded")
    return doubled, lost


_CELLS = {"once": "once", "asked": "asked a person", "doubled": "**DOUBLED**", "lost": "**LOST**", "not reached": "–"}


def is_passed(report: dict[str, Any]) -> bool:
    """Return whether at least one case was tried, and no effect was duplicated or lost."""
    cases = report["cases"]
    tried = [case for case in cases if case["verdict"] != "not reached"]
    return bool(tried) and not any(case["verdict"] in BAD for case in cases)


def markdown(report: dict[str, Any]) -> str:
    """Return the report for people."""
    cases, about = report["cases"], report["about"]
    points = list(dict.fromkeys(case["point"] for case in cases))
    tools = list(dict.fromkeys(case["tool"] for case in cases))
    bad = [case for case in cases if case["verdict"] in BAD]
    total = sum(case["verdict"] == "asked" for case in cases)
    tried = sum(case["verdict"] != "not reached" for case in cases)
    summary = (
        f"{tried} kills: {sum(case['verdict'] == 'doubled' for case in cases)} doubled, "
        f"{sum(case['verdict'] == 'lost' for case in cases)} lost, {total} asked a person"
    )
    lines = [
        f"# Crash test of {about['agent']}",
        "",
        f"**{_verdict(report)}.** {summary}.",
        "",
        *_table(("what", "which"), about.items()),
        "",
        "Rows are tools, columns where the worker was killed. *once*: the effect exists once."
        " *asked a person*: the outcome was unknown, and nothing was repeated"
        " without asking. –: the run doesn't reach that point.",
        "",
        *_table(
            ("tool", *points),
            (
                (f"`{tool}`" if tool else "*the run*", *(_cell(cases, tool, point) for point in points))
                for tool in tools
            ),
        ),
    ]
    if missing := report.get("uncovered"):
        lines += [
            "",
            "## What this test leaves out",
            "",
            "No worker was killed in child runs and continuations of these runs. Test their agents separately:",
            "",
            *(f"- {each}" for each in missing),
        ]
    if bad:
        lines += ["", "## What was doubled or lost", ""]
        lines += [f"- {_case_place(case)}, run {case['run']}: {'; '.join(case['problems'])}" for case in bad]
    notes = [f"- {_case_place(case)}: {note}" for case in cases for note in case["notes"]]
    if notes:
        lines += ["", "## Notes", "", *notes]
    lines += ["", "## Runs", "", *_runs([report["calm"], *cases])]
    lines += [
        "",
        "Read and accepted:",
        "",
        "Name ______________________  Date ______________  Signature ______________________",
    ]
    return "\n".join(lines) + "\n"


def _runs(cases: list[dict[str, Any]]) -> list[str]:
    return _table(
        ("case", "run", "ended", "seconds", "left the worker", "effects", "asked"),
        (
            (
                _case_place(case),
                case["run"],
                case["state"],
                f"{case['seconds']:.1f}",
                _counts(case["sent"]),
                _counts(case["effects"]),
                ", ".join(case["asked"]) or "–",
            )
            for case in cases
        ),
    )


def _verdict(report: dict[str, Any]) -> str:
    if not is_passed(report):
        return "NOT PASSED"
    return "Passed, but tools were left out" if report.get("uncovered") else "Passed"


def _cell(cases: list[dict[str, Any]], tool: str, point: str) -> str:
    found = next((case["verdict"] for case in cases if (case["tool"], case["point"]) == (tool, point)), "")
    return _CELLS.get(found, "")


def _case_place(case: dict[str, Any]) -> str:
    return f"{case['tool'] or 'the run'} at {case['point']}" if case["point"] else "undisturbed"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "–"


def _table(head: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [
        f"| {' | '.join(str(each).replace('|', '/').replace(chr(10), ' ') for each in row)} |" for row in rows
    ]
