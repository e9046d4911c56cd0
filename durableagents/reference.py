"""The page with the API reference, rendered on the server from the OpenAPI document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse

from durableagents.openapi import description
from ledger.web.page_base import Page


class Reference(Page):
    """All operations, with parameters and the fields of their bodies and answers."""

    template = "reference.html"
    section = "account"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(request, {"groups": groups()})


@cache
def groups() -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the operations by the first part of their address."""
    document = description()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found[operation["tags"][0]].append(
                {
                    "id": operation["operationId"],
                    "method": method.upper(),
                    "path": path,
                    "summary": operation["summary"],
                    "description": operation["description"],
                    "parameters": operation.get("parameters", []),
                    "shapes": list(_shapes(operation, document["components"]["schemas"])),
                }
            )
    return sorted(found.items())


def _shapes(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    answers = [(f"Answer {status}", each) for status, each in operation["responses"].items() if status < "400"]
    for title, part in [("Body", operation.get("requestBody", {})), *answers]:
        for content in part.get("content", {}).values():
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if name:
                yield f"{title}: {name}", list(_fields(schemas[name]))


def _fields(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, each in schema.get("properties", {}).items():
        yield {
            "name": name,
            "type": _type(each),
            "description": each.get("description", ""),
            "is_required": name in schema.get("required", ()),
        }


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "items" in schema:
        return f"{_type(schema['items'])}[]"
    some = schema.get("anyOf") or schema.get("allOf") or schema.get("oneOf") or ()
    return " or ".join(map(_type, some)) or str(schema.get("type", "any"))
