"""Retry delays grow, stay below the limit, and are not in step with others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runs.backoff import Patience, pause_seconds


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause_seconds(n, first=0.5, longest=4.0) for n in range(-1, 7)] == [0, 0, 0.5, 1, 2, 4, 4, 4]


@given(st.integers(1, 10**9), st.floats(0.001, 10), st.floats(0, 1))
def test_a_pause_is_spread_below_its_length_and_never_beyond_the_longest(n: int, first: float, spread: float) -> None:
    longest = first * 100
    whole = pause_seconds(n, first=first, longest=longest)
    assert whole * (1 - spread) <= pause_seconds(n, first=first, longest=longest, spread=spread) <= whole <= longest


def test_patience_begins_again_after_a_success() -> None:
    patience = Patience(first_seconds=0.1, last_seconds=0.4)
    assert patience.is_fresh
    pauses = [patience.seconds() for _ in range(5)]
    assert all(whole / 2 <= pause <= whole for pause, whole in zip(pauses, [0.1, 0.2, 0.4, 0.4, 0.4], strict=True))
    assert not patience.is_fresh
    patience.reset()
    assert patience.is_fresh and patience.seconds() <= 0.1
