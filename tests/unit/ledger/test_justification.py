"""A recorded justification must be readable."""

from __future__ import annotations

import pytest

from ledger.append import MAX_JUSTIFICATION, justified
from ledger.errors import JustificationRequired
from tests.cases import each_case

UNREADABLE = [
    "",
    "   ",
    "\n\t",
    "\u200b",
    "\u2060\u200d",
    "\u3164",
    "\u2800",
    "\ufeff",
    "\x00",
    "a\x00b",
    None,
    7,
    ["yes"],
    "\ufe0f",
    "\u180b",
    "\U0001d159",
    "\u0301",
    "\u0301\u0301\u0301",
    "\U000e0100\U000e0101",
    ".",
    "…",
    "。",
    "✓",
    "--- ---",
    "\u115f\u1160\uffa0",
    "\u2800\u2800",
    "k",
    "a\u0301\u0302",
    "\u17b4\u17b5",
    "\u034f\u034f",
]


@each_case("given", UNREADABLE)
def test_a_reason_that_nobody_can_see_is_none(given: object) -> None:
    with pytest.raises(JustificationRequired):
        justified("approve", given)


def test_a_reason_beyond_the_limit_is_refused_whole() -> None:
    with pytest.raises(JustificationRequired):
        justified("approve", "x" * (MAX_JUSTIFICATION + 1))


@each_case("given", ["as quoted", "同意", "見積書どおり", "ok\u200b", "हाँ जी", "موافق", "42", "cafe\u0301"])
def test_any_script_will_do(given: str) -> None:
    assert justified("approve", f"  {given} ") == given


@each_case(
    ("given", "problem"),
    [
        ("", "missing"),
        ("…", "missing"),
        ("x", "too short"),
        ("x" * (MAX_JUSTIFICATION + 1), "too long"),
        ("as\x00 quoted", "NUL"),
    ],
)
def test_the_refusal_says_what_is_wrong_with_it(given: str, problem: str) -> None:
    with pytest.raises(JustificationRequired) as refused:
        justified("approve", given)
    assert problem in refused.value.extra["errors"][0]["problem"]
