"""The description is whole, and what is answered is what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management import call_command

from approvals.api.schemas import ApprovalPage, AuditPage
from durableagents.openapi import description
from ledger.api.schemas import EntryPage, EventPage, OverridePage, VerificationPage, VerificationRow
from runs.api.schemas import AgentPage, MessagePage, ProcessPage, RunPage, RunRow
from tests.api.conftest import Api
from tests.api.test_roles import MATRIX, api_routes


def test_every_route_and_method_is_described(auditor: Api) -> None:
    document = auditor.get("/api/schema").json()
    assert document["openapi"] == "3.1.0"
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    plain = {name: "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", path) for name, path in api_routes()}
    assert described == {(plain[name], method) for name, method in MATRIX}


def test_every_reference_leads_somewhere() -> None:
    document = description()

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(inner) for inner in value.values()))
        return set().union(*(references(inner) for inner in value)) if isinstance(value, list) else set()

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known


def test_answers_have_the_described_shapes(operator: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    operator.post(f"runs/{run}/pause", {"justification": "to have a record"})
    RunRow.model_validate(operator.get(f"runs/{run}").json())
    for address, shape in {
        "runs": RunPage,
        f"runs/{run}/events": EventPage,
        f"runs/{run}/ledger": EntryPage,
        f"runs/{run}/overrides": OverridePage,
        f"runs/{run}/children": RunPage,
        f"runs/{run}/transcript": MessagePage,
        f"runs/{run}/verification": VerificationRow,
        "verification": VerificationPage,
        "agents": AgentPage,
        "fleet": ProcessPage,
        "approvals": ApprovalPage,
        "audit": AuditPage,
    }.items():
        shape.model_validate(operator.get(address).json())


def test_the_description_is_made_without_a_warning(tmp_path: Path) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", file=str(tmp_path / "openapi.yml"))
    assert "openapi: 3.1" in (tmp_path / "openapi.yml").read_text()
