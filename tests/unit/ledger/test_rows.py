"""An API row holds the stored values by the documented names, and no others."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.api.schemas import EntryRow, EventRow
from ledger.web.renderers import AnyTextRenderer

STORED = {
    "id": 7,
    "seq": 3,
    "slot": "0.1/2",
    "attempt": 0,
    "fact": "committed",
    "tool": "order",
    "replay_class": "pure",
    "key": None,
    "external_id": "PO-1",
    "digest": None,
    "actor": "worker:1",
    "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "secret": "not for the API",
}


def shown(row: Any) -> Any:
    return json.loads(AnyTextRenderer().render({"results": [row]}))["results"][0]


def test_a_row_has_the_documented_names_and_no_others() -> None:
    found = shown(EntryRow.of(SimpleNamespace(**STORED), span_id="ab" * 8))
    assert list(found) == list(EntryRow.model_fields) and "secret" not in found
    assert found["at"] == "2026-01-02T03:04:05Z" and EntryRow.model_validate(found)


def test_what_was_not_set_is_not_said_and_what_is_given_goes_before_what_is_stored() -> None:
    stored = SimpleNamespace(seq=1, kind="X", at=None, epoch=0, slot=None, attempt=0, fact=None, hash=b"\x00")
    found = shown(EventRow.of(stored, data={}, payload=None, hash="00", prev_hash=""))
    assert found["hash"] == "00" and "damage" not in found
    assert shown(EventRow.of(stored, data={}, payload=None, hash="", prev_hash="", damage="cut"))["damage"] == "cut"


def test_a_damaged_row_is_shown_as_it_stands() -> None:
    damaged = shown(
        EntryRow.of(SimpleNamespace(**STORED | {"attempt": "many", "fact": {"odd": []}, "tool": "\ud800"}), span_id="")
    )
    assert damaged["attempt"] == "many" and damaged["fact"] == {"odd": []} and damaged["tool"] == "\ud800"


def test_content_may_be_nested_deeply() -> None:
    deep: Any = "bottom"
    for _ in range(400):
        deep = [deep]
    row = EventRow.of(
        SimpleNamespace(seq=1, kind="X", at=None, epoch=0, slot=None, attempt=0, fact=None),
        data={},
        payload=deep,
        hash="",
        prev_hash="",
    )
    assert json.dumps(shown(row)["payload"]).count("[") == 400


def test_a_name_that_is_neither_stored_nor_given_is_a_mistake() -> None:
    with pytest.raises(AttributeError, match="external_id"):
        EntryRow.of(SimpleNamespace(**{name: value for name, value in STORED.items() if name != "external_id"}))
