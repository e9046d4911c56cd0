"""A form from a schema: input becomes the document that the agent's own model would accept."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

import pytest
from django.template.loader import render_to_string
from pydantic import BaseModel, Field

from ledger.errors import InvalidInput
from runs.console.forms import fields as forms
from runs.console.forms.form import SchemaForm
from runs.console.forms.maker import MAX_FIELDS
from tests.cases import each_case


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Inner(BaseModel):
    """The inside."""

    note: str = Field(max_length=2000)
    amount: int | str


class Everything(BaseModel):
    name: str = Field(title="Full name", description="As on paper.")
    size: Size
    mode: Literal["fast", "slow"] = "slow"
    count: int = 3
    ratio: float | None = None
    price: Decimal = Decimal("1.50")
    is_urgent: bool = False
    inner: Inner
    extra: dict[str, int] = {}
    tags: list[str] = []
    maybe: Inner | None = None
    rebate: Decimal | None = None
    level: Literal[1, 2] = 1
    day: date | None = None


SCHEMA = Everything.model_json_schema()
TYPED = {
    "name": "Ann",
    "size": "large",
    "mode": "fast",
    "count": "12",
    "ratio": "0.5",
    "price": "19.90",
    "is_urgent": "on",
    "inner.note": "two\r\nlines",
    "inner.amount": "84000",
    "extra": '{"a": 1}',
    "tags": '["x"]',
    "maybe.note": "",
    "maybe.amount": "",
    "rebate": "12345678901234567.89",
    "level": "2",
    "day": "2026-03-02",
}


def document_of(typed: dict[str, str], schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    return SchemaForm(schema, data=typed).document()


def drawn(form: SchemaForm) -> str:
    return "".join(render_to_string("forms/field.html", {"field": field}) for field in form.roots)


def refused(*problems: tuple[str, str]) -> InvalidInput:
    return InvalidInput("No.", errors=[{"field": field, "problem": problem} for field, problem in problems])


@each_case(
    ("name", "kind"),
    [
        ("name", forms.Value),
        ("size", forms.Choice),
        ("mode", forms.Choice),
        ("level", forms.Choice),
        ("count", forms.Integer),
        ("ratio", forms.Json),
        ("price", forms.Integer),
        ("is_urgent", forms.Flag),
        ("inner", forms.Group),
        ("inner.note", forms.Long),
        ("inner.amount", forms.Integer),
        ("rebate", forms.Integer),
        ("extra", forms.Document),
        ("tags", forms.Document),
        ("day", forms.Value),
    ],
)
def test_each_kind_of_value_has_its_field(name: str, kind: type[forms.Value]) -> None:
    assert type(SchemaForm(SCHEMA).fields[name]) is kind


def test_what_is_typed_is_what_the_model_takes() -> None:
    found = Everything.model_validate(document_of(TYPED))
    assert (found.count, found.ratio, found.price, found.is_urgent, found.extra, found.level, found.day) == (
        12,
        0.5,
        Decimal("19.90"),
        True,
        {"a": 1},
        2,
        date(2026, 3, 2),
    )
    assert found.inner == Inner(note="two\nlines", amount=84000)
    assert found.maybe is None and found.tags == ["x"]
    assert found.rebate == Decimal("12345678901234567.89")  # without a float in between


def test_a_sample_survives_the_form() -> None:
    sample = document_of(TYPED)
    fields = {field.html_name: field.value() for field in SchemaForm(SCHEMA, document=sample)}
    assert (
        document_of(
            {name: text for name, text in fields.items() if text and not SchemaForm(SCHEMA).fields[name].children}
        )
        == sample
    )


def test_errors_stand_at_their_fields_and_what_was_typed_stays() -> None:
    form = SchemaForm(SCHEMA, data={**TYPED, "inner.amount": "<b>lots"})
    wrong = refused(
        ("input.inner.amount", "too <i>much"),
        ("input.name.0", "odd"),
        ("input.nowhere", "lost"),
        ("input", "the whole"),
    )
    form.mark(wrong, within="input")
    assert {field.name: [*field.errors] for field in form if field.errors} == {
        "inner.amount": ["too <i>much"],
        "name": ["odd"],
    }
    assert [*form.non_field_errors()] == ["nowhere: lost", "the whole"]
    page = drawn(form)
    assert re.search(
        r'<input [^>]*value="&lt;b&gt;lots"[^>]*aria-invalid="true"[^>]*aria-describedby="f-inner-amount_error"', page
    )
    assert 'aria-describedby="f-name_helptext f-name_error"' in page and page.count('aria-invalid="true"') == 2
    assert re.search(r'id="f-inner-amount_error">\s*too &lt;i&gt;much', page) and 'id="f-name_helptext"' in page


def test_what_is_no_field_of_the_form_is_refused_by_name() -> None:
    stray = {f"stray{n}": "x" for n in range(30)} | {"inner.amount ": "1", "<b>": "x"}
    with pytest.raises(InvalidInput) as found:
        document_of({**TYPED, **stray})
    named = [problem["field"] for problem in found.value.extra["errors"]]
    assert "32 fields" in found.value.detail and "<b>" in named and "inner.amount " in named and len(named) == 20
    form = SchemaForm(SCHEMA, data={**TYPED, **stray})
    form.mark(found.value, within="input")
    assert any(words.startswith("<b>: is not a field of this form") for words in form.non_field_errors())


def test_words_of_a_schema_are_no_markup() -> None:
    odd = {
        "type": "string",
        "title": "<b>title",
        "description": "<i>help",
        "enum": ["<u>choice"],
        "default": "<u>choice",
    }
    page = drawn(SchemaForm({"properties": {"<s>key": odd, "<s>": {"type": "object", "properties": {"<s>": odd}}}}))
    assert not re.search(r"<[bius]>", page) and page.count("&lt;u&gt;choice") >= 2


def test_a_schema_that_contains_itself_ends() -> None:
    class Tree(BaseModel):
        name: str
        child: Tree | None = None

    Tree.model_rebuild()
    names = [*SchemaForm(Tree.model_json_schema()).fields]
    assert len(names) < 40 and "name" in names


def test_a_schema_that_contains_itself_many_times_over_ends_too() -> None:
    schema = {
        "$defs": {"N": {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/N"} for n in range(9)}}},
        "$ref": "#/$defs/N",
    }
    form = SchemaForm({"properties": {"a": schema}, "$defs": schema["$defs"]})
    assert len(form.fields) <= MAX_FIELDS + 9 * 9
