"""Holds real answers to the OpenAPI document that the API serves."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from django.urls import Resolver404, resolve
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from durableagents.openapi import description


def misfits(method: str, path: str, answer: Any) -> list[str]:
    """Return how an answer differs from its description; nothing for addresses and methods that don't exist."""
    try:
        route = resolve(urlsplit(path).path).route
    except Resolver404:
        return []
    pattern = "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route)
    operation = _document()["paths"].get(pattern, {}).get(method.lower())
    if operation is None:
        return []
    status, kind = str(answer.status_code), answer["Content-Type"]
    if status == "202" and "/changes/" in answer.get("Location", ""):
        return []  # an act that waits for a second person, which any address for settings may answer
    if kind not in operation["responses"].get(status, {}).get("content", {}):
        return [f"{method} {pattern}: {status} {kind} is not described"]
    if not kind.endswith("json"):  # a file
        return []
    problems = _validator(pattern, method.lower(), status, kind).iter_errors(json.loads(answer.getvalue()))
    return [f"{method} {pattern}: {status}: {one.json_path}: {one.message[-200:]}" for one in problems]


@cache
def _document() -> Any:
    return description()


@cache
def _registry() -> Any:
    registry: Any = Registry()
    return registry.with_resource("urn:api", Resource(_document(), DRAFT202012))


@cache
def _validator(pattern: str, method: str, status: str, kind: str) -> Any:
    # References are relative to the document, so the schema is read from there.
    parts = ("paths", pattern, method, "responses", status, "content", kind, "schema")
    where = "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts)
    return Draft202012Validator({"$ref": f"urn:api#/{where}"}, registry=_registry())
