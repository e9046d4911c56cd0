"""Fields of a gated call that people may change before approving, as its gate declares. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

EDITABLE = "editable"  # key in a plan of the schema of what may be changed


def wrong(editable: Any) -> str:
    """Return why a declaration is invalid; empty if it is valid."""
    is_list = isinstance(editable, (list, tuple)) and all(isinstance(name, str) and name for name in editable)
    if not is_list or len(set(editable)) != len(editable):
        return "give a list of the names of fields of the tool's input, each once"
    return ""


def misfit(editable: Sequence[str], model: type[BaseModel]) -> str:
    """Return why these fields of a tool's input can't be editable; empty if they can."""
    if not editable:
        return ""
    try:
        fields = model.model_json_schema().get("properties", {})
    except PydanticInvalidForJsonSchema as error:
        return f"{model.__name__} has no schema that a form could be made of: {error}"
    unknown = [name for name in editable if name not in fields]
    return f"{', '.join(unknown)}: no field of {model.__name__}, which has {', '.join(fields)}" if unknown else ""


def told(editable: Sequence[str], model: type[BaseModel]) -> dict[str, Any]:
    """Return a plan's schema of the editable fields, from which a form can be drawn without the agent's code."""
    if not editable:
        return {}
    whole = model.model_json_schema()
    fields = {name: whole["properties"][name] for name in editable}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": fields}
    if "$defs" in whole and '"$ref"' in json.dumps(fields):
        schema["$defs"] = whole["$defs"]
    return {EDITABLE: json.loads(json.dumps(schema))}


def closed(schema: Any) -> Any:
    """Forbid undeclared fields in objects, which a tool would silently drop; explicit schemas stay as they are."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for several in ("properties", "$defs"):
        if isinstance(found.get(several), dict):
            found[several] = {name: closed(each) for name, each in found[several].items()}
    for some in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(found.get(some), list):
            found[some] = [closed(each) for each in found[some]]
    for one in ("items", "additionalProperties"):
        found |= {one: closed(found[one])} if one in found else {}
    if "properties" in found and not {"additionalProperties", "allOf", "patternProperties"} & set(found):
        found["additionalProperties"] = False
    return found


def editable_in(plan: Any) -> dict[str, Any]:
    """Return the schema of a plan's editable fields; without properties if there are none."""
    schema = plan.get(EDITABLE) if isinstance(plan, dict) and isinstance(plan.get("arguments"), dict) else None
    is_one = isinstance(schema, dict) and isinstance(schema.get("properties"), dict)
    return schema if is_one and isinstance(schema, dict) else {"properties": {}}
