from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.web import strict_json
from tests.cases import each_case

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_python_writes_is_read_back(value: object) -> None:
    assert strict_json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_named_problem(raw: bytes) -> None:
    with suppress(strict_json.MalformedJSON):
        strict_json.loads(raw)


@each_case(
    ("raw", "says"),
    [
        (b"{", "not JSON"),
        (b"NaN", "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b"[1e999]", "1e999"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' twice"),
        (rb'"\ud800"', "surrogate"),
        (rb'{"\udfff": 1}', "surrogate"),
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"1" * 5000, "digits"),
        (b"[" * 100_000, "values"),
        (b"[" * 40_000, "nested"),
        (b'{"a":[' + b"[]," * 340_000 + b"0]}", "50000 values"),
        (b"[" + b"0," * 50_000 + b"0]", "50000 values"),
        (b"{" + b",".join(b'"%d":0' % n for n in range(50_001)) + b"}", "50000 values"),
        (b"[" * 65 + b"]" * 65, "nested"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "nested"),
    ],
)
def test_what_readers_disagree_about_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(strict_json.MalformedJSON, match=says):
        strict_json.loads(raw)


@each_case("text", ["lorem, ipsum [x] {y} " * 40_000, '\\",[{' * 120_000, "\\\\" * 250_000 + ","])
def test_what_stands_inside_strings_is_not_counted(text: str) -> None:
    assert strict_json.loads(json.dumps({"note": text}).encode()) == {"note": text}


def test_as_many_values_as_are_taken_are_taken() -> None:
    assert strict_json.loads(b"[" + b"0," * 49_998 + b"0]") == [0] * 49_999


def test_depth_within_the_limit_is_read() -> None:
    assert strict_json.loads(b"[" * 64 + b"]" * 64)


@each_case(
    "raw",
    [
        b"[" + b"1," * 500_000 + b"1]",
        b'{"a":1' + b"".join(b',"%d":1' % n for n in range(90_000)) + b',"a":1}',
        b'"' + b"\\u00e9" * 170_000 + b'"',
        b"1." + b"1" * 1_000_000,
        b'{"a":[' + b"[]," * 340_000 + b"0]}",
        b'["' + b'\\"' * 500_000,
        b'"' * 1_000_000,
        b"[" + b"[]," * 16_000 + b'{"' + b"x" * 900_000 + b'":1}]',
    ],
)
def test_a_full_size_body_costs_no_more_than_a_moment(raw: bytes) -> None:
    began = time.process_time()
    with suppress(strict_json.MalformedJSON):  # a quick refusal is as good as an answer
        strict_json.loads(raw)
    # A string of this size takes a hundredth of a second; the bound allows for a busy machine.
    assert time.process_time() - began < 1
