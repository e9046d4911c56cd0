"""List cursors survive an address unchanged; truncated or invented ones are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ledger.web.cursors import at_microseconds, closed, numbered, numbers_of, opened, placed, placed_at
from tests.cases import each_case

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


@given(MOMENTS, st.uuids())
def test_a_place_comes_back_from_an_address(at: datetime, id: UUID) -> None:
    assert opened(closed(at, id)) == (at, id)


@given(st.text() | st.binary().map(bytes.hex))
def test_what_nobody_wrote_is_no_place_or_a_moment(text: str) -> None:
    place = opened(text)
    assert place is None or closed(*place) == text


@each_case("cursor", ["", "AAAA", "é", "_" * 32, closed(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1))[:-4]])
def test_a_cursor_that_was_cut_is_no_place(cursor: str) -> None:
    assert opened(cursor) is None


def test_a_moment_beyond_the_calendar_is_none() -> None:
    assert at_microseconds(2**63) is None and at_microseconds(0) == datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_number_that_a_row_can_have_is_a_place(number: int) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert placed_at(placed(at, number)) == (at, number)


@each_case("number", [2**63, -(2**63) - 1, 10**19 - 1])
def test_no_other_number_is_one(number: int) -> None:
    assert placed_at(placed(datetime(2026, 1, 1, tzinfo=UTC), number)) is None


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3))
def test_numbers_come_back_from_an_address(numbers: list[int]) -> None:
    digits = [10] * len(numbers)
    assert numbers_of(numbered(*numbers), *digits) == tuple(numbers)
    for wrong in ("", numbered(*numbers, 1), numbered(*numbers) + "\n", "-" + numbered(*numbers), "٣" * len(numbers)):
        assert numbers_of(wrong, *digits) is None
