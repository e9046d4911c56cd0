"""The vocabulary is closed, and what was once written is read back as it was."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import events as e
from ledger.chain import ZERO, body_hash

texts = st.text(max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
_FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    str: texts, int: st.integers(-(2**40), 2**40), bool: st.booleans(), list[str]: st.lists(texts, max_size=4),
}  # fmt: skip


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values for a clear field: the vocabulary uses few types, on purpose."""
    if type(None) in get_args(hint):
        return st.none() | strategy(next(a for a in get_args(hint) if a is not type(None)))
    return _FIELDS[hint]


@st.composite
def events(draw: st.DrawFn) -> e.Event:
    kind = draw(st.sampled_from(sorted(e.KINDS)))
    cls = e.KINDS[kind]
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls) if f.name != "payload"]
    return cls(payload=draw(json_values), **{name: draw(strategy(hints[name])) for name in names})


@settings(max_examples=300, deadline=None)
@given(events())
def test_an_event_comes_back_as_it_was_written(event: e.Event) -> None:
    clear, sealed = e.encode_clear(event), e.seal(event.payload)
    again = e.decode(clear, e.unseal(sealed))
    assert again == event and type(again) is type(event)
    assert e.encode_clear(again) == clear, "one form only"


@settings(max_examples=200, deadline=None)
@given(events())
def test_the_clear_part_is_sorted_compact_ascii_json(event: e.Event) -> None:
    """With no floats in it this is one form only, which any reader can make again."""
    clear = e.encode_clear(event)
    whole = json.loads(clear)
    assert clear.isascii() and list(whole) == sorted(whole)
    assert whole["kind"] == event.KIND and whole["slot"] == event.slot and whole["attempt"] == event.attempt
    assert "payload" not in whole


def test_no_kind_holds_a_float_or_anything_mutable_in_the_clear() -> None:
    for cls in e.KINDS.values():
        for name, hint in get_type_hints(cls).items():
            if name not in ("payload", "KIND", "FACT"):
                strategy(hint)


def test_every_kind_is_frozen_named_like_its_class_and_in_the_past_tense() -> None:
    assert len(e.KINDS) == len(set(e.KINDS.values())) > 25
    for name, cls in e.KINDS.items():
        assert cls.KIND == name == cls.__name__
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert cls.__doc__ and cls.__doc__.strip().endswith(".")


@pytest.mark.parametrize(
    "clear",
    [
        b'{"kind":"RunDreamed","slot":null,"attempt":0}',
        b'{"slot":null,"attempt":0}',
        b'{"kind":"RunCompleted","slot":null,"attempt":0,"more":1}',
        b'{"kind":"VisitEntered","slot":null,"attempt":0,"node":"x"}',
        b"not json",
        b"[]",
        b"\xff\xfe",
        b"",
    ],
)
def test_what_is_not_in_the_vocabulary_is_refused(clear: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        e.decode(clear)


@pytest.mark.parametrize(
    ("event", "fact"),
    [
        (e.VisitEntered(node="a", visit=1), None),
        (e.ToolReturned(slot="s", tool="t"), "result"),
        (e.ToolRedispatched(slot="s", tool="t", n=3), "resent.3"),
        (e.ToolReconciled(slot="s", tool="t", verdict="fail", by="x", n=1), "reconciled.1"),
        (e.WaitOpened(slot="s", wait="timer", deadline="", n=2), "wait_opened.timer.2"),
        (e.WaitResolved(slot="s", wait="timer", resolution="fired", by="x", n=2), "wait_resolved.timer.2"),
    ],
)
def test_a_fact_is_numbered_where_a_slot_may_have_several(event: e.Event, fact: str | None) -> None:
    assert event.fact == fact


# --- sealed payloads ---


@settings(max_examples=300, deadline=None)
@given(json_values)
def test_a_payload_comes_back_as_it_was_sealed(value: Any) -> None:
    assert e.unseal(e.seal(value)) == value


@given(st.text(alphabet="ab", min_size=2000, max_size=4000))
def test_large_payloads_are_packed_and_small_ones_are_not(text: str) -> None:
    sealed = e.seal(text)
    assert sealed is not None and sealed[:1] == e.ZSTD and len(sealed) < len(text) / 2
    assert (e.seal("small") or b"")[:1] == e.RAW
    assert e.unseal(memoryview(sealed)) == text


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_nobody_sealed_raise_a_value_error_and_nothing_else(data: bytes) -> None:
    try:
        value = e.unseal(data)
    except ValueError:
        return
    json.dumps(value)


@settings(max_examples=200, deadline=None)
@given(value=json_values.filter(lambda v: v is not None), data=st.data())
def test_a_sealed_payload_with_a_changed_byte_never_has_the_same_hash(value: Any, data: st.DataObject) -> None:
    sealed = bytearray(e.seal(value) or b"")
    before = body_hash(b"clear", bytes(sealed))
    i = data.draw(st.integers(0, len(sealed) - 1))
    sealed[i] ^= data.draw(st.integers(1, 255))
    assert body_hash(b"clear", bytes(sealed)) != before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"x": -float("inf")}, {1, 2}, object(), b"bytes"])
def test_what_is_no_json_is_not_sealed(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        e.seal(value)


def test_nothing_and_null_are_told_apart_in_the_hash() -> None:
    assert e.seal(None) is None
    assert body_hash(b"x", None) != body_hash(b"x", b"") != body_hash(b"x", ZERO)


def test_a_bomb_is_not_unpacked() -> None:
    """A few kilobytes of zstd can hold gigabytes: what a sealer can't have made is refused before it fills the memory."""
    import zstandard

    bomb = e.ZSTD + zstandard.compress(b"[" + b" " * (65 * 1024 * 1024) + b"]", 1)
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="too large"):
        e.unseal(bomb)


def test_a_payload_that_could_not_be_read_back_is_not_sealed() -> None:
    with pytest.raises(ValueError, match="too large"):
        e.seal("x" * (e.MAX_PAYLOAD + 1))
