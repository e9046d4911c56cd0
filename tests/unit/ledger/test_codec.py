"""A payload is restored as packed, and bytes that `pack` can't make are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.chain import ZERO, body_hash
from ledger.codec import MAX_PAYLOAD, RAW, ZSTD, pack, unpack
from tests.cases import each_case
from tests.integration.ledger.json_values import json_values
from tests.tiers import many


@settings(max_examples=many(300, 100))
@given(json_values)
def test_a_payload_comes_back_as_it_was_packed(value: Any) -> None:
    assert unpack(pack(value, None)) == value


@given(st.text(alphabet="ab", min_size=2000, max_size=4000))
def test_large_payloads_are_compressed_and_small_ones_are_not(text: str) -> None:
    packed = pack(text, None)
    assert packed is not None and packed[:1] == ZSTD and len(packed) < len(text) / 2
    assert (pack("small", None) or b"")[:1] == RAW
    assert unpack(memoryview(packed)) == text


@settings(max_examples=many(500, 100))
@given(st.binary(max_size=200))
def test_bytes_that_nobody_packed_raise_a_value_error_and_nothing_else(data: bytes) -> None:
    try:
        value = unpack(data)
    except ValueError:
        return
    json.dumps(value)


@settings(max_examples=many(200, 60))
@given(value=json_values.filter(lambda v: v is not None), data=st.data())
def test_a_packed_payload_with_a_changed_byte_never_has_the_same_hash(value: Any, data: st.DataObject) -> None:
    packed = bytearray(pack(value, None) or b"")
    before = body_hash(b"clear", bytes(packed))
    i = data.draw(st.integers(0, len(packed) - 1))
    packed[i] ^= data.draw(st.integers(1, 255))
    assert body_hash(b"clear", bytes(packed)) != before


@each_case("value", [float("nan"), float("inf"), {"x": -float("inf")}, {1, 2}, object(), b"bytes"])
def test_what_is_no_json_is_not_packed(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        pack(value, None)


def test_nothing_and_null_are_told_apart_in_the_hash() -> None:
    assert pack(None, None) is None
    assert body_hash(b"x", None) != body_hash(b"x", b"") != body_hash(b"x", ZERO)


def test_a_bomb_is_not_unpacked() -> None:
    """A few kilobytes of zstd can hold gigabytes: it is refused before it fills the memory."""
    bomb = ZSTD + zstandard.compress(b"[" + b" " * (MAX_PAYLOAD + 1) + b"]", 1)
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="too large"):
        unpack(bomb)


def test_a_payload_that_could_not_be_read_back_is_not_packed() -> None:
    with pytest.raises(ValueError, match="too large"):
        pack("x" * (MAX_PAYLOAD + 1), None)
