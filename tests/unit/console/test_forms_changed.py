"""A form to change a document: untouched fields keep their values, whatever a browser sends."""

from __future__ import annotations

from typing import Any, Literal

from django.template.loader import render_to_string
from pydantic import BaseModel, Field

from runs.console.forms.form import ExtraField, SchemaForm
from tests.integration.console.conftest import filled_in


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
    """Return the document after only these fields are typed into (None: an unticked box)."""
    sent = filled_in(drawn(SchemaForm(schema, document=document, keeps=True))) | typed
    data = {name: text for name, text in sent.items() if text is not None}
    return SchemaForm(schema, data=data, document=document, keeps=True).document()


def started(document: dict[str, Any], schema: dict[str, Any] = SCHEMA, **typed: str | None) -> dict[str, Any]:
    """Return the same for a form that is prefilled and makes a new document."""
    sent = filled_in(drawn(SchemaForm(schema, document=document))) | typed
    data = {name: text for name, text in sent.items() if text is not None}
    return SchemaForm(schema, data=data, document=document).document()


def shown_of(schema: dict[str, Any], *, without: str) -> dict[str, Any]:
    return {key: value for key, value in started({}, schema).items() if key != without}


def test_a_tick_that_is_taken_away_is_gone() -> None:
    class Wishes(BaseModel):
        notify: bool = True
        note: str = ""

    class Asked(BaseModel):
        wishes: Wishes = Wishes()
        other: Wishes | None = None
        amount: int = 1

    schema = Asked.model_json_schema()
    none = {"notify": False, "note": ""}
    for of in (changed, started):
        for document in ({"wishes": {"notify": True, "note": ""}}, {}):
            found = Asked.model_validate(of(document, schema, **{"wishes.notify": None}))
            assert found.wishes.model_dump() == none, (of, document)
        found = Asked.model_validate(of({"other": {"notify": True, "note": ""}}, schema, **{"other.notify": "false"}))
        assert found.other is not None and found.other.model_dump() == none
        assert Asked.model_validate(of({}, schema, amount="4")) == Asked(amount=4)


def test_what_is_emptied_is_nothing_and_not_what_it_is_by_itself() -> None:
    assert changed({"reference": "R-1"}, reference="")["reference"] is None
    assert changed({"place": THERE}, **{"place.floor": ""})["place"] == {**THERE, "floor": None}
    assert changed({"place": THERE}, **{"place.city": ""})["place"] == {**THERE, "city": ""}
    assert changed({}, reference="")["reference"] is None and started({}, reference="")["reference"] is None
    assert changed({"item": "desks"}, item="")["item"] == started({"item": "desks"}, item="")["item"] == ""
    assert started({"number": 7}, number="") == shown_of(SCHEMA, without="number"), "which the field says of itself"
    emptied = {"other.city": "", "other.floor": "", "other.is_open": None, "other.size": ""}
    assert changed({"other": {**THERE, "size": "gone"}}, **emptied)["other"] is None


def test_no_two_fields_are_called_the_same() -> None:
    token = "csrfmiddlewaretoken"
    inner = {"type": "object", "properties": {"tags": {"type": "string"}}}
    schema = {"properties": {"input": inner, "tags": {"type": "string"}, token: {"type": "string"}}}
    form = SchemaForm(schema, extra_fields={"tags": ExtraField("Tags", "tags")})
    names = [field.html_name for field in form if not field.field.children]
    assert len({*names, "tags", token}) == len(names) + 2
    sent = {name: f"of {name}" for name in names} | {"tags": "the page's", token: "the page's"}
    assert SchemaForm(schema, data=sent, extra_fields={"tags": ExtraField("Tags", "tags")}).document() == {
        "input": {"tags": "of input.input.tags"},
        "tags": "of input.tags",
        token: f"of input.{token}",
    }
