"""A form of what is being changed: what nobody touched of it stays as it was, whatever a browser makes of it."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from django.template.loader import render_to_string
from pydantic import BaseModel, Field

from runs.console.forms import SchemaForm
from tests.console.conftest import filled_in


class Place(BaseModel):
    city: str = "Berlin"
    floor: int | None = 3
    is_open: bool = True
    size: Literal["small", "large"] = "small"


class Order(BaseModel):
    item: str = "chairs"
    note: str = Field("", max_length=2000)
    mail: str | None = Field(None, json_schema_extra={"format": "email"})
    number: int = 0
    share: float = 0.0
    is_urgent: bool = False
    is_paid: bool | None = None
    size: Literal["small", "large"] | None = None
    extra: dict[str, Any] = {}
    place: Place = Place()
    other: Place | None = None
    reference: str | None = "none"


SCHEMA = Order.model_json_schema()
THERE = {"city": "Paris", "floor": 1, "is_open": False, "size": "large"}


def drawn(form: SchemaForm) -> str:
    return "".join(render_to_string("forms/field.html", {"field": field}) for field in form.roots)


def changed(document: dict[str, Any], schema: dict[str, Any] = SCHEMA, **typed: str | None) -> dict[str, Any]:
    """What comes of a document where only these fields are typed into (None: a box whose tick is taken away)."""
    sent = filled_in(drawn(SchemaForm(schema, document=document))) | typed
    data = {name: text for name, text in sent.items() if text is not None}
    return SchemaForm(schema, data=data, document=document).document()


@pytest.mark.parametrize("document", [
    {"item": "two\nlines"}, {"item": "two\r\nlines"}, {"item": "old\rMac"}, {"item": "\n"}, {"item": "  around "},
    {"item": ""}, {"item": "\n\nfirst"}, {"note": "a\r\nb\nc"}, {"note": "\nstarts"},
    {"mail": " a@example.com "}, {"mail": "a@example.com\n"}, {"mail": None}, {"mail": ""},
    {"number": 12345678901234567}, {"number": 9007199254740991}, {"number": -0}, {"share": 1e22}, {"share": 3},
    {"share": 0.1}, {"is_paid": None}, {"is_paid": True}, {"is_paid": False}, {"is_urgent": True},
    {"is_urgent": "yes"}, {"size": None}, {"size": "huge"}, {"size": "large"}, {"extra": {"b": 1.0, "a": "x\r\ny"}},
    {"place": THERE}, {"place": {"city": "Rome"}}, {"place": {**THERE, "door": 7}}, {"place": {}}, {"other": None},
    {"other": THERE}, {"other": {**THERE, "floor": None}}, {"reference": None}, {"reference": ""},
    {"place": None}, {"number": None}, {"item": 5}, {"item": ["no", "text"]}, {"other": "no place"}, {},
])  # fmt: skip
def test_what_nobody_touched_is_as_it_was(document: dict[str, Any]) -> None:
    found = changed(document)
    assert found == document and repr(found) == repr(document)  # 1 is no 1.0, and no True
    beside = changed({"item": "chairs", **document}, number="7")
    assert {**beside, "number": 0} == {"item": "chairs", **document, "number": 0} and beside["number"] == 7


def test_what_was_typed_is_what_it_becomes() -> None:
    document = Order(other=Place()).model_dump() | {"is_paid": None}
    assert changed(document, item="desks")["item"] == "desks"
    assert changed(document, is_paid="false")["is_paid"] is False
    assert changed({**document, "is_paid": True}, is_paid="")["is_paid"] is None
    assert changed({**document, "is_urgent": True}, is_urgent=None)["is_urgent"] is False
    assert changed({**document, "size": "large"}, size="")["size"] is None


def test_what_is_emptied_is_nothing_and_not_what_it_is_by_itself() -> None:
    assert changed({"reference": "R-1"}, reference="")["reference"] is None
    assert changed({"place": THERE}, **{"place.floor": ""})["place"] == {**THERE, "floor": None}
    emptied = {"other.city": "", "other.floor": "", "other.is_open": None, "other.size": ""}
    assert changed({"other": {**THERE, "size": "gone"}}, **emptied)["other"] is None


def test_a_group_that_is_not_there_shows_nothing_until_somebody_fills_it() -> None:
    assert "Berlin" not in drawn(SchemaForm({"properties": {"other": SCHEMA["properties"]["other"]}, **DEFS}))
    assert changed({"other": None}, **{"other.city": "Oslo"})["other"] == {"city": "Oslo"}
    typed = {"other.city": "Oslo", "other.is_open": "false"}
    assert changed({"other": None}, **typed)["other"] == {"city": "Oslo", "is_open": False}
    deep = {"properties": {"in": {"anyOf": [{"properties": {"place": SCHEMA["properties"]["place"]}, "type": "object"},
                                           {"type": "null"}]}}, **DEFS}  # fmt: skip
    assert "Berlin" not in drawn(SchemaForm(deep)) and changed({"in": None}, deep) == {"in": None}
    assert "Berlin" in drawn(SchemaForm(SCHEMA)), "a group that is there by itself is filled as it is by itself"


DEFS = {"$defs": SCHEMA["$defs"]}


def test_what_no_field_shows_of_a_group_stays_where_another_of_its_fields_is_changed() -> None:
    found = changed({"place": {**THERE, "door": 7}}, **{"place.city": "Oslo"})
    assert found["place"] == {**THERE, "door": 7, "city": "Oslo"}


def test_what_has_to_be_named_and_may_be_nothing_is_named_as_nothing() -> None:
    class Asked(BaseModel):
        count: int | None
        place: Place | None
        word: str | None

    schema = Asked.model_json_schema()
    sent = filled_in(drawn(SchemaForm(schema)))
    assert SchemaForm(schema, data=sent).document() == {"count": None, "place": None, "word": None}
