"""A form from a schema: what is typed comes back as the document that the agent's own model would take."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from runs.forms import document_of, fields_of, stray


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


SCHEMA = Everything.model_json_schema()
FIELDS = {field.name: field for one in fields_of(SCHEMA) for field in one.walk()}
TYPED = {
    "name": "Ann", "size": "large", "mode": "fast", "count": "12", "ratio": "0.5", "price": "19.90", "is_urgent": "on",
    "inner.note": "two\r\nlines", "inner.amount": "84000", "extra": '{"a": 1}', "tags": '["x"]', "maybe.note": "", "maybe.amount": "",
    "rebate": "12345678901234567.89",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [("name", "text"), ("size", "choice"), ("mode", "choice"), ("count", "integer"), ("ratio", "number"), ("price", "decimal"),
     ("is_urgent", "flag"), ("inner", "group"), ("inner.note", "long"), ("inner.amount", "decimal"), ("rebate", "decimal"), ("extra", "json"), ("tags", "json")],
)  # fmt: skip
def test_each_kind_of_value_has_its_field(name: str, kind: str) -> None:
    assert FIELDS[name].kind == kind


def test_a_field_says_what_its_author_said() -> None:
    assert (FIELDS["name"].label, FIELDS["name"].help, FIELDS["name"].is_required) == ("Full name", "As on paper.", True)
    assert FIELDS["size"].choices == ["small", "large"] and FIELDS["count"].value == "3" and not FIELDS["count"].is_required


def test_what_is_typed_is_what_the_model_takes() -> None:
    document = document_of(SCHEMA, TYPED)
    found = Everything.model_validate(document)
    assert (found.count, found.ratio, found.price, found.is_urgent, found.extra) == (12, 0.5, Decimal("19.90"), True, {"a": 1})
    assert found.inner == Inner(note="two\nlines", amount=84000)
    assert found.maybe is None and found.tags == ["x"]
    assert found.rebate == Decimal("12345678901234567.89")  # no float in between


def test_a_sample_survives_the_form() -> None:
    sample = document_of(SCHEMA, TYPED)
    fields = [field for one in fields_of(SCHEMA, sample) for field in one.walk() if field.kind != "group"]
    again = {field.name: field.value for field in fields if field.kind != "flag"} | {"is_urgent": "on"}
    assert document_of(SCHEMA, again) == sample


def test_what_is_no_number_is_handed_on_as_typed() -> None:
    document = document_of(SCHEMA, {**TYPED, "count": "a dozen", "extra": "{broken", "ratio": "½"})
    assert (document["count"], document["extra"], document["ratio"]) == ("a dozen", "{broken", "½")


def test_an_empty_optional_field_is_left_out_and_a_required_one_is_not() -> None:
    document = document_of(SCHEMA, {})
    assert document["name"] == "" and "count" not in document and "extra" not in document


def test_errors_stand_at_their_fields() -> None:
    errors = {"inner.amount": ["too much"], "name.0": ["odd"], "nowhere": ["lost"], "": ["the whole"]}
    fields = fields_of(SCHEMA, {}, errors)
    found = {field.name: field.errors for one in fields for field in one.walk() if field.errors}
    assert found == {"inner.amount": ["too much"], "name": ["odd"]}
    assert stray(fields, errors) == ["nowhere: lost", "the whole"]


def test_a_schema_that_contains_itself_ends() -> None:
    class Tree(BaseModel):
        name: str
        child: Tree | None = None

    Tree.model_rebuild()
    schema = Tree.model_json_schema()
    names = [field.name for one in fields_of(schema) for field in one.walk()]
    assert len(names) < 40 and "name" in names
