"""The crash test's judge holds what was done against the record, and the record alone does not acquit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from durableagents.contrib.certify.crashtest import report
from durableagents.contrib.certify.crashtest.effects import Effect, effects_of_calls
from durableagents.contrib.certify.crashtest.report import CaseResult, Entry, effects_of_run, find_effect, judge
from tests.cases import each_case


def keyed(*facts: str, slot: str = "a", attempt: int = 0, key: str = "k-a", verdict: str = "") -> list[Entry]:
    return [Entry(slot, attempt, fact, "order", key, verdict) for fact in facts]


def unkeyed(*facts: str, slot: str = "m", verdict: str = "") -> list[Entry]:
    return [Entry(slot, 0, fact, "mail", None, verdict) for fact in facts]


def order(key: str = "k-a") -> Effect:
    return Effect("whatever the other side calls it", key, None)


MAIL = Effect("mail", None, "r")


def judged(
    entries: Sequence[Entry],
    effects: Sequence[Effect],
    state: str = "completed",
    *,
    asked: Sequence[str] = (),
    killed: bool = True,
    expected: dict[str, int] | None = None,
) -> str:
    case_result = CaseResult("order", "CP4", "r", state=state, was_killed=killed, asked=list(asked))
    judge(case_result, entries, effects, ends="completed", expected=Counter(expected or {}))
    return case_result.verdict


DONE = ("pending", "committed")


@each_case(
    ("entries", "effects", "verdict"),
    [
        (keyed(*DONE), [order()], "once"),
        (keyed(*DONE), [order(), order()], "doubled"),
        (keyed(*DONE), [], "lost"),
        (keyed(*DONE), [order("another run's")], "lost"),
        (
            keyed("pending", "unknown", "reconciled", verdict="did_not") + keyed(*DONE, attempt=1, key="k-a2"),
            [order(), order("k-a2")],
            "doubled",
        ),
        (
            keyed("pending", "unknown", "reconciled", verdict="did_not") + keyed(*DONE, attempt=1, key="k-a2"),
            [order("k-a2")],
            "once",
        ),
        (keyed("pending", "unknown", "reconciled", verdict="happened"), [], "lost"),
        (keyed("pending", "unknown", "reconciled", verdict="happened"), [order()], "once"),
        (unkeyed(*DONE), [MAIL], "once"),
        (unkeyed(*DONE), [MAIL, MAIL], "doubled"),
        (unkeyed(*DONE), [], "lost"),
        (unkeyed(*DONE) + unkeyed(*DONE, slot="n"), [MAIL, MAIL], "once"),
        (unkeyed("pending", "unknown", "reconciled", verdict="did_not"), [MAIL], "doubled"),
        (unkeyed(*DONE), [Effect("mail", None, "another run")], "lost"),
    ],
)
def test_what_was_done_is_held_against_what_is_on_record(
    entries: list[Entry], effects: list[Effect], verdict: str
) -> None:
    expected = Counter(tool for tool, _ in effects_of_run("r", entries, effects))
    assert judged(entries, effects, expected=expected) == verdict


def test_the_record_alone_does_not_acquit() -> None:
    """A run that forgot a call altogether, one that made one more, and one that never came to its end."""
    assert judged([], [], expected={"order": 1}) == "lost"
    both = keyed(*DONE) + keyed(*DONE, slot="b", key="k-b")
    assert judged(both, [order(), order("k-b")], expected={"order": 1}) == "doubled"
    assert judged(keyed(*DONE), [order()], "failed", expected={"order": 1}) == "lost"
    assert judged(keyed(*DONE), [order()], "running", expected={"order": 1}) == "lost"
    assert judged(keyed(*DONE), [order()], killed=False, expected={"order": 1}) == "not reached"
    assert judged(keyed(*DONE), [order()], asked=["order: it happened"], expected={"order": 1}) == "asked"


def test_who_is_asked_about_a_call_finds_its_own_effect_and_no_others() -> None:
    entries = keyed("pending") + unkeyed(*DONE) + unkeyed("pending", slot="n")
    mine = effects_of_run("r", entries, [order(), MAIL])
    assert find_effect("a", 0, entries, mine) is not None
    assert find_effect("n", 0, entries, mine) is None, "the one mail is the one that is accounted for"
    assert find_effect("n", 0, entries, effects_of_run("r", entries, [MAIL, MAIL])) is not None
    assert find_effect("a", 0, entries, effects_of_run("r", entries, [MAIL])) is None


def line(what: str, key: str | None = "k", slot: str = "s", **more: Any) -> dict[str, Any]:
    return {"what": what, "tool": "t", "key": key, "run": "r", "slot": slot, "attempt": 0} | more


def test_without_a_record_of_the_other_side_what_left_counts() -> None:
    assert len(list(effects_of_calls([line("left"), line("left"), line("done", result={"n": 1})]))) == 1, (
        "as if it were honoured"
    )
    assert [x.result for x in effects_of_calls([line("left"), line("done", result={"n": 1})])] == [{"n": 1}]
    assert len(list(effects_of_calls([line("left", None), line("left", None)]))) == 2, "each without a key is its own"
    assert list(effects_of_calls([line("left"), line("raised", error="NotSent: refused")])) == []
    assert len(list(effects_of_calls([line("left"), line("raised", error="TransportError: cut")]))) == 1


def test_a_test_in_which_nothing_was_killed_proves_nothing() -> None:
    assert not report.is_passed({"cases": [{"verdict": "not reached"}]}) and not report.is_passed({"cases": []})
    assert report.is_passed({"cases": [{"verdict": "asked"}]})
    assert not report.is_passed({"cases": [{"verdict": "once"}, {"verdict": "lost"}]})
