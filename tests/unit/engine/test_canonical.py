"""The fast way to canonical bytes and the standard's agree on everything, refusals included."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from runs.engine.canonical import canonical, parsed
from tests.cases import each_case

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(2**53, 10**21).map(float),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_canonical_bytes_are_the_standards(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        with pytest.raises(ValueError, match="no canonical"):
            canonical(value)
    else:
        assert canonical(value) == expected
        assert canonical(parsed(expected)) == expected and parsed(expected) == value


@each_case("whole", [2.0**53, -(2.0**53), 1.7e18, 123456789012345680000.0, 9.99e20])
def test_a_whole_float_that_is_written_as_an_integer_is_read_as_a_float(whole: float) -> None:
    assert canonical(parsed(canonical([whole, {"n": whole}]))) == canonical([whole, {"n": whole}])


@each_case("damaged", [b"", b"{", b"[" * 200_000, b"1" * 5000, b"\xff", b"[01]"])
def test_what_is_no_json_is_no_value(damaged: bytes) -> None:
    with pytest.raises(ValueError):
        parsed(damaged)
