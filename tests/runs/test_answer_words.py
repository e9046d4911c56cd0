"""What is wrong with an answer is said as a form says it, never as a schema does."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from runs.services.answer_words import misfits


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


@pytest.mark.parametrize(
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
        ({"share": 0.7}, "share", ("is no multiple of 0.5", "give a multiple of 0.5")),
        ({"note": "too long"}, "note", ("too long: 8 characters", "at most 5")),
        ({"name": ""}, "name", ("is empty", "fill it in")),
        ({"day": "sunday"}, "day", ("is none of the choices", "choose one of: monday, friday")),
        ({"day": ""}, "day", ("is empty", "choose one of: monday, friday")),
        ({"is_wet": "yes"}, "is_wet", ("is not true or false", "give true or false")),
        ({"lines": "A1"}, "lines", ("is not a list", 'give a list, such as ["a", "b"]')),
        ({"lines": [{"sku": "A1"}, {"sku": "A2"}]}, "lines", ("has 2 entries", "at most 1")),
        ({"lines": [{}]}, "lines.0.sku", ("missing", "add it")),
        (
            {"lines": [{"sku": "a1"}]},
            "lines.0.sku",
            ("does not have the form that is asked for", "it has to match ^[A-Z]"),
        ),
        ({"lines": [{"sku": "A"}]}, "lines.0.sku", ("too short: 1 characters", "at least 2")),
        ({"extra": [1]}, "extra", ("is not an object", 'give an object, such as {"name": "value"}')),
        ({"nmae": "x"}, "", ("holds what is not asked for: nmae", "remove it")),
    ],
)
def test_a_misfit_is_told_as_a_form_tells_it(given: dict[str, Any], field: str, words: tuple[str, str]) -> None:
    (found,) = misfits(Count.model_json_schema(), given)
    assert found == {"field": f"answer.{field}".rstrip("."), "problem": words[0], "fix": words[1]}


def test_an_answer_that_fits_has_none() -> None:
    assert misfits(Count.model_json_schema(), {"pallets": 4, "damaged": None, "price": "12.50"}) == []


def test_what_no_word_is_known_for_is_told_in_the_schema_s_own() -> None:
    (found,) = misfits({"not": {"type": "string"}}, "text")
    assert found["fix"] == "see the question's schema" and found["problem"]


def test_of_very_many_the_first_twenty_are_told() -> None:
    found = misfits({"items": {"type": "integer", "maximum": 1}}, [9] * 1000)
    assert len(found) == 20 and {one["problem"] for one in found} == {"is more than 1"}


class Named(BaseModel):
    code: str = Field(default="", pattern=r"^(a+)+$")
    by_name: dict[Annotated[str, Field(pattern=r"^(a+)+$")], int] = {}
    looks: Annotated[str, Field(json_schema_extra={"pattern": r"^(?=a)(a+)+$"})] = ""
    words: set[str | int] = set()


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({"code": "a" * 40 + "!"}, "code", "does not have the form that is asked for"),
        ({"by_name": {"a" * 40 + "!": 1}}, "by_name", "holds what is not asked for"),
        ({"words": [*range(60_000), "x", "x"]}, "words", "names something more than once"),
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


def test_a_pattern_that_can_not_be_run_safely_is_left_to_the_tools_own_code() -> None:
    began = time.process_time()
    for text in ("aa!", "a" * 40 + "!"):
        assert misfits(Named.model_json_schema(), {"looks": text}) == []
    assert (
        misfits({"patternProperties": {"(?=a)a": {"type": "integer"}}, "additionalProperties": False}, {"a": 1}) == []
    )
    assert time.process_time() - began < 5


def test_patterns_of_names_and_lists_without_twins_are_checked_as_they_were() -> None:
    schema = {
        "patternProperties": {"^n_": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    }
    assert misfits(schema, {"n_1": 1, "x": True}) == []
    assert [one["field"] for one in misfits(schema, {"n_1": "x", "x": 1})] == ["answer.n_1", "answer.x"]
    unique = {"uniqueItems": True}
    assert misfits(unique, [1, True, "1", [1], {"a": 1}]) == []
    assert len(misfits(unique, [1, 1.0])) == len(misfits(unique, [{"a": 1, "b": 2}, {"b": 2, "a": 1}])) == 1
    assert len(misfits({"unevaluatedProperties": False, "properties": {"a": {}}}, {"a": 1, "b": 1})) == 1


@pytest.mark.parametrize(
    "schema", [{"anyOf": [False, {"type": "integer"}]}, {"oneOf": [True, True]}, {"anyOf": [False]}]
)
def test_of_a_schema_that_is_true_or_false_it_is_said_as_well(schema: dict[str, Any]) -> None:
    (wrong,) = misfits({"properties": {"it": schema}}, {"it": "a word"})
    assert wrong["field"] == "answer.it" and wrong["problem"] and wrong["fix"]
    assert "whole number" in wrong["problem"] or schema != {"anyOf": [False, {"type": "integer"}]}


def test_kinds_of_several_options_are_told_each() -> None:
    schema = {"anyOf": [{"type": ["integer", "null"]}, {"type": "array"}]}
    (wrong,) = misfits({"properties": {"it": schema}}, {"it": "a word"})
    assert wrong["problem"] == "is not a whole number or nothing or a list" and "['integer" not in wrong["fix"]
