"""Makes a form's fields from a JSON schema. Values that no field can express are typed as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django import forms

from runs.console.forms.fields import Absent, Choice, Document, Flag, Group, Integer, Json, Long, Value

_MAX_DEPTH = 8
# A schema that contains itself several times grows exponentially with depth. Beyond this depth, values are typed as
# JSON.
MAX_FIELDS = 400
_LONG_TEXT = 500
_DECIMAL = {"inputmode": "decimal"}
_MONO = {"class": "mono", "spellcheck": "false"}
_DATES = {"date": "YYYY-MM-DD", "time": "HH:MM:SS", "date-time": "YYYY-MM-DDTHH:MM:SSZ"}


@dataclass(frozen=True, slots=True)
class _Level:
    """The position of a group: its depth, and whether it or an enclosing group may be null or is absent."""

    depth: int = 0
    may_be_null: bool = False
    is_unset: bool = False  # the group's fields show nothing, not even defaults


_TOP = _Level()


class Maker:
    """Walks a schema and collects `fields` by name.
    `typed` returns the text typed in a field. With `keeps`, a field may be emptied only where an empty value is
    valid."""

    def __init__(self, schema: Mapping[str, Any], *, typed: Callable[[str], Any], keeps: bool) -> None:
        found = schema.get("$defs")
        self._definitions = found if isinstance(found, dict) else {}
        self._typed, self._keeps = typed, keeps
        self.fields: dict[str, Value] = {}

    def group(self, path: str, schema: Mapping[str, Any], document: Any, level: _Level = _TOP) -> tuple[str, ...]:
        """Make the fields of an object, filled from a document. Returns their names."""
        inner = document if is_object(document) else {}
        properties, required = schema.get("properties"), schema.get("required")
        names = []
        for key, raw in (properties if isinstance(properties, dict) else {}).items():
            name = f"{path}.{key}" if path else str(key)
            while name in self.fields:  # a key may contain a dot
                name += "_"
            names.append(name)
            part = raw if isinstance(raw, dict) else {}
            is_required = key in (required if isinstance(required, list) else ())
            self._one(name, str(key), part, inner.get(key, Absent), level, is_required=is_required)
        return tuple(names)

    def _one(self, name: str, key: str, part: dict[str, Any], had: Any, level: _Level, *, is_required: bool) -> None:
        default, is_nullable = part.get("default"), self._may_be_null(part)
        value = had if had is not Absent else None if level.is_unset else default
        is_needed = is_required or (self._keeps and had is not Absent)
        own = {"key": key, "required": is_needed and not is_nullable, "value": value}
        field = self._make(name, part, own, replace(level, depth=level.depth + 1), is_nullable=is_nullable)
        field.had = had
        has_default = default is not None and "default" in part
        if is_nullable and (is_required or had is not Absent or (has_default and not level.is_unset)):
            field.empty = None
        elif type(field) in (Value, Long) and isinstance(default, str) and default and not level.is_unset:
            field.empty = ""
        elif has_default and not field.required and default not in ("", [], {}):
            field.say_default(default)

    def _make(self, name: str, part: dict[str, Any], own: dict[str, Any], level: _Level, *, is_nullable: bool) -> Value:
        whole = self.resolved(part)
        kind = "json" if level.depth > _MAX_DEPTH or len(self.fields) >= MAX_FIELDS else _kind(whole)
        if kind == "flag" and (is_nullable or level.may_be_null):
            kind, whole = "choice", {**whole, "enum": [True, False]}  # or null, which a checkbox can't express
        if kind == "group":
            field: Value = Group(whole, **{**own, "value": None}, widget=forms.HiddenInput())
            self.fields[name] = field
            value, may_be_null = own["value"], level.may_be_null or is_nullable
            is_unset = level.is_unset or (value is None and is_nullable)
            field.children = self.group(name, whole, value, _Level(level.depth, may_be_null, is_unset))
            return field
        field = self.fields[name] = _field(kind, whole, own)
        for text in (field.initial, self._typed(name)):
            if isinstance(text, str):
                field.give_room(text)
        return field

    def _may_be_null(self, schema: Any) -> bool:
        whole = self._followed(schema)
        options = _options(whole, "anyOf") or _options(whole, "oneOf") or [whole]
        return any("null" in _types(self._followed(option)) for option in options)

    def resolved(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema with references followed and "or null" removed. Keys next to a reference take
        precedence."""
        whole = self._followed(schema)
        for _ in range(_MAX_DEPTH):
            name = "anyOf" if _options(whole, "anyOf") else "oneOf"
            options = [option for option in _options(whole, name) if _types(self._followed(option)) != {"null"}]
            if len(options) != 1 or "const" in options[0]:
                break
            del whole[name]
            whole = self._followed({**options[0], **whole})
        types = _types(whole) - {"null"}
        return {**whole, "type": types.pop()} if len(types) == 1 else whole

    def _followed(self, schema: Any) -> dict[str, Any]:
        whole = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(_MAX_DEPTH):
            if isinstance(reference := whole.get("$ref"), str):
                target = self._definitions.get(reference.rpartition("/")[2])
                del whole["$ref"]
                whole = {**(target if isinstance(target, dict) else {}), **whole}
            elif len(_options(whole, "allOf")) == 1:
                whole = {**whole.pop("allOf")[0], **whole}
            else:
                break
        return whole


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _options(schema: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = schema.get(name)
    return found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []


def _types(schema: Mapping[str, Any]) -> set[str]:
    types = schema.get("type")
    return {each for each in (types if isinstance(types, list) else [types]) if isinstance(each, str)}


def _field(kind: str, schema: Mapping[str, Any], own: dict[str, Any]) -> Value:
    length = schema.get("maxLength")
    most = {"maxlength": length} if isinstance(length, int) else {}
    match kind:
        case "choice":
            return Choice(schema, choices=_choices(schema), **own)
        case "flag":
            return Flag(schema, widget=forms.CheckboxInput(), **{**own, "required": False})
        case "integer" | "decimal":
            field = Integer(schema, widget=forms.TextInput(_DECIMAL), **own)
            field.may_be_text = kind == "decimal"
            return field
        case "number":
            return Json(schema, widget=forms.TextInput(_DECIMAL), **own)
        case "json":
            return Document(schema, widget=forms.Textarea({"rows": 4, "cols": False, **_MONO}), **own)
        case "long":
            return Long(schema, widget=forms.Textarea({"rows": 3, "cols": False}), **own)
        case "email":
            return Value(schema, widget=forms.EmailInput(), **own)
        case "date":
            return Value(schema, widget=forms.TextInput({"placeholder": _DATES[schema["format"]]}), **own)
        case _:
            return Value(schema, widget=forms.TextInput(most), **own)


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    if isinstance(listed := schema.get("enum"), list) and listed:
        return list(listed)
    if "const" in schema:
        return [schema["const"]]
    options = _options(schema, "anyOf") or _options(schema, "oneOf")
    return [option["const"] for option in options] if options and all("const" in option for option in options) else []


def _kind(schema: Mapping[str, Any]) -> str:
    if _choices(schema):
        return "choice"
    options = _options(schema, "anyOf") or _options(schema, "oneOf")
    types = {each for option in options for each in _types(option)} - {"null"}
    if types:
        return "decimal" if types <= {"integer", "string", "number"} and types & {"integer", "number"} else "json"
    form, length = schema.get("format"), schema.get("maxLength")
    match schema.get("type"):
        case "object":
            return "group" if schema.get("properties") and is_object(schema["properties"]) else "json"
        case "string" if form == "email" or (isinstance(form, str) and form in _DATES):
            return "email" if form == "email" else "date"
        case "string":
            return "long" if isinstance(length, int) and length > _LONG_TEXT else "text"
        case "integer" | "number" as kind:
            return str(kind)
        case "boolean":
            return "flag"
        case _:
            return "json"
