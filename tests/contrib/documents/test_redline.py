"""A text against its previous version: both are shown completely, in order, and in time."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableagents.contrib.documents.redline import ADDED, REMOVED, SAME, Part, redline
from tests.cases import each_case

TEXTS = st.text(alphabet="ab \n\u200b", max_size=40)


def told(new: str, old: str) -> list[tuple[str, str]]:
    return [(part.what, part.text) for part in redline(new, old)]


def without(parts: list[Part], what: str) -> str:
    return "".join(part.text for part in parts if part.what != what)


@given(TEXTS, TEXTS)
def test_all_of_both_is_told_in_order(new: str, old: str) -> None:
    parts = redline(new, old)
    assert without(parts, REMOVED) == new and without(parts, ADDED) == old
    assert all(one.what != other.what for one, other in itertools.pairwise(parts))
    assert all(part.text for part in parts)
    if new == old:
        assert {part.what for part in parts} <= {SAME}


def test_what_differs_is_told_by_words() -> None:
    assert told("pay 900 USD now", "pay 100 USD") == [
        (SAME, "pay "),
        (REMOVED, "100"),
        (ADDED, "900"),
        (SAME, " USD"),
        (ADDED, " now"),
    ]
    assert told("one\ntwo\nthree\n", "one\nthree\n") == [(SAME, "one\n"), (ADDED, "two\n"), (SAME, "three\n")]
    assert told("same", "same") == [(SAME, "same")] and told("", "") == []
    assert told("", "gone") == [(REMOVED, "gone")] and told("new", "") == [(ADDED, "new")]


def every_second_line(word: str) -> str:
    return "".join(f"{' '.join([word] * 150)}\nk{n}\n" for n in range(300))


def test_past_the_bound_what_was_not_compared_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(told("a b c d", "x b y d")) == 6
    monkeypatch.setattr("durableagents.contrib.documents.redline.MAX_PAIRS", 1)
    assert told("a b c d", "x b y d") == [(REMOVED, "x b y"), (ADDED, "a b c"), (SAME, " d")]


@each_case(
    ("new", "old"),
    [
        ("a " * 100_000, "b " * 100_000),
        ("a b " * 50_000, "b a " * 50_000),
        ("a\n" * 100_000, "a\n" * 99_000),
        ("".join(f"w{n}\nx{n}\n" for n in range(20_000)), "".join(f"w{n}\ny{n}\n" for n in range(20_000))),
        ("\n".join(map(str, range(30_000))), "\n".join(map(str, range(30_000, 0, -1)))),
        ("x" * 200_000, "y" * 200_000),
        (every_second_line("a"), every_second_line("b\t")),
    ],
)
def test_texts_that_are_made_to_take_long_take_no_longer_than_a_moment(new: str, old: str) -> None:
    began = time.process_time()
    parts = redline(new, old)
    assert time.process_time() - began < 5
    assert without(parts, REMOVED) == new and without(parts, ADDED) == old
