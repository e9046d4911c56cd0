from __future__ import annotations

import time
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from runs.services.answer_words import misfits
from tests.cases import each_case


class Line(BaseModel):
    sku: str = Field(min_length=2, pattern="^[A-Z]")


class Count(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pallets: int = Field(default=0, ge=0, le=500)
    damaged: int | None = Field(default=None, lt=10)
    price: Decimal = Decimal(1)
    worth: Annotated[Decimal, Field(ge=0)] | None = None
    share: float = Field(default=0.5, gt=0, multiple_of=0.5)
    note: str = Field(default="", max_length=5)
    name: str = Field(default="x", min_length=1)
    day: Literal["monday", "friday"] = "monday"
    is_wet: bool = False
    lines: list[Line] = Field(default=[], max_length=1)
    extra: dict[str, int] = {}


@each_case(
    ("given", "field", "words"),
    [
        ({"pallets": 900}, "pallets", ("is more than 500", "at most 500")),
        ({"pallets": -1}, "pallets", ("is less than 0", "at least 0")),
        ({"pallets": "many"}, "pallets", ("is not a whole number", "give a whole number, such as 12")),
        ({"pallets": ""}, "pallets", ("is empty", "give a whole number, such as 12")),
        ({"damaged": "few"}, "damaged", ("is not a whole number", "give a whole number, such as 12")),
        ({"damaged": 10}, "damaged", ("is not less than 10", "less than 10")),
        ({"price": [1]}, "price", ("is not a number", "give a number, such as 12.5")),
        ({"worth": -5}, "worth", ("is less than 0.0", "at least 0.0")),
        ({"worth": [1]}, "worth", ("is not a number", "give a number, such as 12.5")),
        ({"share": 0}, "share", ("is not more than 0", "more than 0")),
        ({"share": 0.7}, "share", ("is not a multiple of 0.5", "give a multiple of 0.5")),
        ({"note": "too long"}, "note", ("too long: 8 characters", "at most 5")),
        ({"name": ""}, "name", ("is empty", "fill it in")),
        ({"day": "sunday"}, "day", ("is not one of the choices", "choose one of: monday, friday")),
        ({"day": ""}, "day", ("is empty", "choose one of: monday, friday")),
        ({"is_wet": "yes"}, "is_wet", ("is not true or false", "give true or false")),
        ({"lines": "A1"}, "lines", ("is not a list", 'give a list, such as ["a", "b"]')),
        ({"lines": [{"sku": "A1"}, {"sku": "A2"}]}, "lines", ("has 2 entries", "at most 1")),
        ({"lines": [{}]}, "lines.0.sku", ("is missing", "fill it in")),
        (
            {"lines": [{"sku": "a1"}]},
            "lines.0.sku",
            ("does not have the required form", "it must match ^[A-Z]"),
        ),
        ({"lines": [{"sku": "A"}]}, "lines.0.sku", ("too short: 1 characters", "at least 2")),
        ({"extra": [1]}, "extra", ("is not an object", 'give an object, such as {"name": "value"}')),
        ({"nmae": "x"}, "", ("contains unknown names: nmae", "remove it")),
    ],
)
def test_a_misfit_is_told_as_a_form_tells_it(given: dict[str, Any], field: str, words: tuple[str, str]) -> None:
    (found,) = misfits(Count.model_json_schema(), given)
    assert found == {"field": f"answer.{field}".rstrip("."), "problem": words[0], "fix": words[1]}


class Named(BaseModel):
    code: str = Field(default="", pattern=r"^(a+)+$")
    by_name: dict[Annotated[str, Field(pattern=r"^(a+)+$")], int] = {}
    looks: Annotated[str, Field(json_schema_extra={"pattern": r"^(?=a)(a+)+$"})] = ""
    words: set[str | int] = set()


@each_case(
    ("given", "field", "problem"),
    [
        ({"code": "a" * 40 + "!"}, "code", "does not have the required form"),
        ({"by_name": {"a" * 40 + "!": 1}}, "by_name", "contains unknown names"),
        ({"words": [*range(20_000), "x", "x"]}, "words", "contains duplicates"),
    ],
)
def test_nothing_that_is_sent_keeps_anybody_waiting(given: dict[str, Any], field: str, problem: str) -> None:
    """Each of these took longer than a run does, on a few letters or a list."""
    began = time.process_time()
    schema = Named.model_json_schema()
    schema["properties"]["by_name"]["additionalProperties"] = False
    (found,) = misfits(schema, given)
    assert found["field"] == f"answer.{field}" and problem in found["problem"]
    assert time.process_time() - began < 5


def test_each_missing_property_is_named() -> None:
    class Both(BaseModel):
        pallets: int
        damaged: int

    assert [each["field"] for each in misfits(Both.model_json_schema(), {})] == ["answer.pallets", "answer.damaged"]
    (one,) = misfits(Both.model_json_schema(), {"pallets": 1})
    assert one["field"] == "answer.damaged"
