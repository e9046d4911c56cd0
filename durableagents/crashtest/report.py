"""A crash test's report, for people to sign and for programs to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from durableagents.crashtest.judging import BAD

_CELLS = {"once": "once", "asked": "asked a person", "doubled": "**DOUBLED**", "lost": "**LOST**", "not reached": "–"}


def is_passed(told: dict[str, Any]) -> bool:
    """Whether nothing was doubled or lost, and something was tried."""
    cases = told["cases"]
    tried = [case for case in cases if case["verdict"] != "not reached"]
    return bool(tried) and not any(case["verdict"] in BAD for case in cases)


def markdown(told: dict[str, Any]) -> str:
    """The report as people read it."""
    cases, about = told["cases"], told["about"]
    points = list(dict.fromkeys(case["point"] for case in cases))
    tools = list(dict.fromkeys(case["tool"] for case in cases))
    bad = [case for case in cases if case["verdict"] in BAD]
    asked = sum(case["verdict"] == "asked" for case in cases)
    tried = sum(case["verdict"] != "not reached" for case in cases)
    words = (
        f"{tried} kills: {sum(case['verdict'] == 'doubled' for case in cases)} doubled, "
        f"{sum(case['verdict'] == 'lost' for case in cases)} lost, {asked} asked a person"
    )
    lines = [
        f"# Crash test of {about['agent']}",
        "",
        f"**{_verdict(told)}.** {words}.",
        "",
        *_table(("what", "which"), about.items()),
        "",
        "Rows are tools, columns where the worker was killed (docs/step-protocol.md). *once*: the effect is there once."
        " *asked a person*: nobody could tell, and nothing was repeated unasked. –: the run doesn't come there.",
        "",
        *_table(
            ("tool", *points),
            (
                (f"`{tool}`" if tool else "*the run*", *(_cell(cases, tool, point) for point in points))
                for tool in tools
            ),
        ),
    ]
    if missing := told.get("uncovered"):
        lines += [
            "",
            "## What this test leaves out",
            "",
            "Nobody was killed in runs that these runs started or went on as. Test their agents by themselves:",
            "",
            *(f"- {each}" for each in missing),
        ]
    if bad:
        lines += ["", "## What was doubled or lost", ""]
        lines += [f"- {_where(case)}, run {case['run']}: {'; '.join(case['problems'])}" for case in bad]
    notes = [f"- {_where(case)}: {note}" for case in cases for note in case["notes"]]
    if notes:
        lines += ["", "## Notes", "", *notes]
    lines += ["", "## Runs", "", *_runs([told["calm"], *cases])]
    lines += [
        "",
        "Read and accepted:",
        "",
        "Name ______________________  Date ______________  Signature ______________________",
    ]
    return "\n".join(lines) + "\n"


def _runs(cases: list[dict[str, Any]]) -> list[str]:
    """Return the table of all runs, one row a case."""
    return _table(
        ("case", "run", "ended", "seconds", "left the worker", "effects", "asked"),
        (
            (
                _where(case),
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


def _verdict(told: dict[str, Any]) -> str:
    if not is_passed(told):
        return "NOT PASSED"
    return "Passed, but tools were left out" if told.get("uncovered") else "Passed"


def _cell(cases: list[dict[str, Any]], tool: str, point: str) -> str:
    found = next((case["verdict"] for case in cases if (case["tool"], case["point"]) == (tool, point)), "")
    return _CELLS.get(found, "")


def _where(case: dict[str, Any]) -> str:
    return f"{case['tool'] or 'the run'} at {case['point']}" if case["point"] else "nobody killed"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {much}" for name, much in sorted(counts.items())) or "–"


def _table(head: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> list[str]:
    made = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return made + [
        f"| {' | '.join(str(each).replace('|', '/').replace(chr(10), ' ') for each in row)} |" for row in rows
    ]
