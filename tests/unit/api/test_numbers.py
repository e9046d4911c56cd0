"""A number in any request body must be one: true is not, even where text is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import get_resolver
from pydantic import ValidationError

from ledger.web.bodies import Strict
from tests.cases import each_case

NUMBERS = {"integer", "number"}


def bodies(of: type[Strict] = Strict) -> Iterator[type[Strict]]:
    for each in of.__subclasses__():
        yield each
        yield from bodies(each)


def is_number(schema: Any) -> bool:
    kinds = [schema, *schema.get("anyOf", ())]
    return bool(NUMBERS & {kind.get("type") for kind in kinds}) and not {"boolean"} & {k.get("type") for k in kinds}


ROUTES = get_resolver().url_patterns  # loads every app with views
FIELDS = sorted(
    {
        (body, name)
        for body in bodies()
        if not body.__name__.endswith("Form")  # text only
        for name, schema in body.model_json_schema().get("properties", {}).items()
        if is_number(schema)
    },
    key=lambda one: (one[0].__module__, one[0].__name__, one[1]),
)


def test_there_are_some() -> None:
    assert len(FIELDS) > 10


@each_case(("body", "name"), FIELDS)
def test_true_is_no_number(body: type[Strict], name: str) -> None:
    with pytest.raises(ValidationError) as error:
        body.model_validate({name: True})
    assert name in {str(each["loc"][0]) for each in error.value.errors() if each["type"] != "missing"}
