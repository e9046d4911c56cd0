"""The vocabulary is closed, and old events are read back unchanged."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import events as e
from ledger.codec import pack, unpack
from tests.cases import each_case
from tests.integration.ledger.json_values import json_values
from tests.tiers import many

texts = st.text(max_size=30)
_FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(-(2**40), 2**40),
    bool: st.booleans(),
    list[str]: st.lists(texts, max_size=4),
    dict[str, int]: st.dictionaries(texts, st.integers(0, 2**40), max_size=4),
}


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Return values for a clear field; the vocabulary uses few types, on purpose."""
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


@settings(max_examples=many(300, 100))
@given(events())
def test_an_event_comes_back_as_it_was_written(event: e.Event) -> None:
    clear, packed = e.encode_clear(event), pack(event.payload, None)
    again = e.decode(clear, unpack(packed))
    assert again == event and type(again) is type(event)
    assert e.encode_clear(again) == clear, "one form only"


@settings(max_examples=many(200, 60))
@given(events())
def test_the_clear_part_is_sorted_compact_ascii_json(event: e.Event) -> None:
    """Without floats this form is unique, and any reader can make it again."""
    clear = e.encode_clear(event)
    whole = json.loads(clear)
    assert clear.isascii() and list(whole) == sorted(whole)
    assert whole["kind"] == event.KIND and whole["slot"] == event.slot and whole["attempt"] == event.attempt
    assert "payload" not in whole


def test_no_kind_holds_a_float_or_anything_mutable_in_the_clear() -> None:
    for cls in e.KINDS.values():
        hints = get_type_hints(cls)
        for name in {f.name for f in dataclasses.fields(cls)} - {"payload"}:
            strategy(hints[name])


def test_every_kind_is_frozen_named_like_its_class_and_in_the_past_tense() -> None:
    assert len(e.KINDS) == len(set(e.KINDS.values())) > 25
    for name, cls in e.KINDS.items():
        assert cls.KIND == name == cls.__name__
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert cls.__doc__ and cls.__doc__.strip().endswith(".")


@each_case(
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


@each_case(
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
