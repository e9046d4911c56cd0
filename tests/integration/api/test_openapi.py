"""The OpenAPI document is complete, its names are unique, and every answer matches it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from durableagents.identity.auth import issue_key
from durableagents.openapi import ComponentNames, DuplicateName, description
from ledger.web.api_base import ApiView
from ledger.web.roles import ROLES
from tests.integration.api import everything
from tests.integration.api.conftest import Api, person
from tests.integration.api.served import misfits
from tests.integration.api.test_roles import MATRIX, api_routes
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "stage", "tools"]


@pytest.mark.django_db
def test_every_route_and_method_is_described_under_an_id_of_its_own(auditor: Api) -> None:
    document = auditor.get("/api/schema").json()
    assert document["openapi"] == "3.1.0"
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    plain = {name: "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", path) for name, path in api_routes()}
    assert described == {(plain[name], method) for name, method in MATRIX}
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    ids = [one["operationId"] for one in operations]
    assert len(ids) == len(set(ids)) and not [one for one in ids if re.search(r"^v1_|_\d$", one)]
    summaries = [one["summary"] for one in operations]
    assert len(summaries) == len(set(summaries)) and ApiView.__doc__ not in [one["description"] for one in operations]


def test_operations_parameters_and_fields_are_described() -> None:
    document = description()
    missing, operations_by_text = [], defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            operations_by_text[operation["description"]].append(f"{method} {path}")
            parameters = operation.get("parameters", [])
            missing += [f"{method} {path}: {each['name']}" for each in parameters if not each.get("description")]
    for name, schema in document["components"]["schemas"].items():
        missing += [f"{name}.{field}" for field in undescribed(schema)]
    assert missing == []
    assert [operations for operations in operations_by_text.values() if len(operations) > 1] == []


def undescribed(schema: Any) -> Iterator[str]:
    """Return the paths of fields without a description, at any depth."""
    if isinstance(schema, list):
        for each in schema:
            yield from undescribed(each)
    elif isinstance(schema, dict):
        for name, value in schema.items():
            if name != "properties":
                yield from undescribed(value)
                continue
            for field, below in value.items():
                if not below.get("description"):
                    yield field
                yield from (f"{field}.{each}" for each in undescribed(below))


def test_justification_is_required_in_all_bodies_that_need_one() -> None:
    schemas = description()["components"]["schemas"]
    unmarked = {
        name
        for name, schema in schemas.items()
        if name.endswith("Body")
        and "justification" in schema["properties"]
        and "justification" not in schema.get("required", [])
    }
    assert unmarked <= {"AnswerBody", "TryBody"}


def test_two_classes_of_one_component_name_are_refused() -> None:
    names = ComponentNames()
    assert names.name_of("runs.models.run.Wait.Kind") == names.name_of("runs.models.run.Wait.Kind") == "WaitKind"
    with pytest.raises(DuplicateName, match=r"a\.Wait\.Kind|runs\.models\.run\.Wait\.Kind and a\.Wait\.Kind"):
        names.name_of("a.Wait.Kind")


@pytest.mark.django_db
def test_every_answer_fits_the_served_description(stage: Stage, tools: Toolbox) -> None:
    runs = everything.live(stage, tools)
    api = Api(issue_key(person("all", *ROLES, is_superuser=True, is_staff=True), "test"))
    assert api.get("/api/schema").json() == description()
    wrong: dict[str, set[str]] = defaultdict(set)
    # Each run where it is shown differently; elsewhere a few.
    is_of_each = {"api-run", "api-run-why", "api-run-latest"}
    wanted = [
        *everything.addresses(runs, lambda name: name in is_of_each),
        *everything.addresses(runs[2:7], lambda name: name.startswith("api-") and name not in is_of_each),
    ]
    for name, _, path in wanted:
        wrong[name] |= set(misfits("GET", path, api.get(path)))
    assert [f"{name}: {each}" for name, found in wrong.items() for each in sorted(found)] == []


@pytest.mark.long
def test_the_description_is_made_without_a_warning(tmp_path: Path) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", file=str(tmp_path / "openapi.yml"))
    assert "openapi: 3.1" in (tmp_path / "openapi.yml").read_text()
