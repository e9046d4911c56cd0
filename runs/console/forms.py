"""A Django form from a JSON schema, that of an agent's input or of a question: Django draws it, binds what came back
and marks what is wrong.

The schema's author is the agent's, and so are the rules: what a person typed is handed on as they typed it (numbers as
numbers where they are such), the agent's own validation judges it, and `mark` puts its words at the fields. Only what
is no field at all is refused here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from django import forms
from django.forms.boundfield import BoundField

from ledger.errors import DurableAgentsError
from ledger.web import strict_json
from ledger.web.page_forms import in_words, refuse_stray

_MAX_DEPTH = 8
# A schema that holds itself several times over grows by the power of its depth: the rest of such a one is typed as
# JSON.
MOST_FIELDS = 400
# Beyond 15 digits JSON readers disagree about the number: it is handed on as typed, for the model to judge.
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_LONG_TEXT = 500
_DECIMAL = {"inputmode": "decimal"}
_DATES = {"date": "YYYY-MM-DD", "time": "HH:MM:SS", "date-time": "YYYY-MM-DDTHH:MM:SSZ"}


class Absent:
    """Of a field that was left empty and may be."""


class Value(forms.Field):
    """One value of the document. What is typed is its text. `had` is what a document that is being changed has of it,
    `empty` what it is where nothing is typed."""

    had: Any = Absent
    empty: Any = Absent
    is_wide = False
    is_flag = False
    note = ""
    children: tuple[str, ...] = ()

    def __init__(
        self, schema: Mapping[str, Any], *, key: str, required: bool, shown: Any, widget: forms.Widget
    ) -> None:
        title = schema.get("title") or key.replace("_", " ")
        super().__init__(
            required=required,
            label=title[:1].upper() + title[1:],
            help_text=schema.get("description", ""),
            initial=self.text_of(shown),
            widget=widget,
        )
        self.key = key

    def text_of(self, shown: Any) -> Any:
        """What the field shows of a value of the document."""
        return "" if shown is None else shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)

    def validate(self, value: Any) -> None:
        """Nothing: whether it may be empty, or may be this, is the model's business."""

    def to_python(self, value: Any) -> Any:
        text = _typed(value)
        return self.empty if not text.strip() and not self.required else self.read(text)

    def is_as_shown(self, value: Any) -> bool:
        """Whether what came back is what was shown: nobody touched it."""
        return _typed(value) == _typed(self.initial)

    def read(self, text: str) -> Any:
        """The value that a text stands for."""
        return text


class Long(Value):
    is_wide = True


class Integer(Value):
    """An integer, or a decimal number that no float may come near: digits are a number, all else stays text."""

    def read(self, text: str) -> Any:
        return int(text) if _INTEGER.fullmatch(text.strip()) else text


class Json(Value):
    """What is typed as JSON; what is none is handed on as text."""

    def read(self, text: str) -> Any:
        try:
            return strict_json.loads(text.encode("utf-8", "replace"))
        except strict_json.MalformedJSON:
            return text


class Document(Json):
    is_wide = True
    note = "as JSON"


class Choice(Value):
    """One of a list. The text of a choice stands for the choice itself, which may be a number."""

    widget: forms.Select

    def __init__(self, schema: Mapping[str, Any], *, choices: list[Any], **more: Any) -> None:
        super().__init__(schema, widget=forms.Select(), **more)
        self.choices = {self.text_of(choice): choice for choice in choices}
        is_blank = not self.required or self.initial not in self.choices
        self.widget.choices = [*([("", "")] if is_blank else []), *((text, text) for text in self.choices)]

    def read(self, text: str) -> Any:
        return self.choices.get(text, text)

    def is_as_shown(self, value: Any) -> bool:
        return _typed(value) == (self.initial if self.initial in self.choices else "")


class Flag(Value):
    is_flag = True

    def text_of(self, shown: Any) -> Any:
        return shown is True

    def to_python(self, value: Any) -> Any:
        return bool(value)

    def is_as_shown(self, value: Any) -> bool:
        return bool(value) is self.initial


class Group(Value):
    """A document in the document: what it holds are fields of their own, `children` by name."""

    def to_python(self, value: Any) -> Any:
        return Absent


def _typed(value: Any) -> str:
    """A text as it was typed: a browser sends each line break as two characters, whichever it was shown."""
    return "" if value is None else str(value).replace("\r\n", "\n").replace("\r", "\n")


class Bound(BoundField):
    """A field of a form that is drawn: one of these for each, as Django has it."""

    field: Value
    form: SchemaForm

    @property
    def auto_id(self) -> str:
        return "f-" + self.html_name.replace(".", "-")

    @property
    def children(self) -> list[Bound]:
        """What a group holds."""
        return self.form.bound(self.field.children)


@dataclass(frozen=True)
class Beside:
    """A field of the page's own beside a form: what it is called there (nothing: nobody fills it in), and its id."""

    label: str = ""
    id: str = ""


@dataclass(frozen=True)
class Aside:
    """What is wrong with such a field."""

    label: str
    id: str
    errors: list[str]

    @property
    def words(self) -> str:
        return "; ".join(self.errors)


class SchemaForm(forms.Form):
    """The fields of an object schema, in their author's order. Shows `document`, or what was typed in `data`. With
    both, `document` is what is being changed: what nobody touched of it stays as it was, to the character.

    A nested field is called by its way, `order.amount`. `beside` are fields that the page has of its own, by name; what
    is wrong with those is put into `aside`.
    """

    bound_field_class = Bound

    def __init__(
        self,
        schema: Mapping[str, Any],
        *,
        data: Mapping[str, Any] | None = None,
        document: Any = None,
        beside: Mapping[str, Beside] = MappingProxyType({}),
    ) -> None:
        super().__init__(data=data)
        self.beside = dict(beside)
        self.aside: dict[str, Aside] = {}
        self._is_changing = data is not None and document is not None
        maker = _Maker(schema)
        self._roots = maker.group("", maker.resolved(schema), document, depth=0)
        self.values = maker.fields
        self.fields.update(self.values)

    def add_prefix(self, field_name: str) -> str:
        return f"input.{field_name}" if field_name in self.beside else field_name

    @property
    def roots(self) -> list[Bound]:
        """The fields that lie in no group."""
        return self.bound(self._roots)

    def bound(self, names: Iterable[str]) -> list[Bound]:
        return [cast(Bound, self[name]) for name in names]

    @property
    def wrong(self) -> list[Bound]:
        """The fields with something wrong in them; a group says itself what is wrong with it."""
        return [field for field in self.bound(self.values) if field.errors and not field.field.children]

    def document(self) -> dict[str, Any]:
        """What was typed as a document. Fields left empty are left out unless the schema requires them. Raises
        InvalidInput for names that are none of the form's: what was written under them would be lost without a word."""
        known = {self.add_prefix(name) for name in self.fields} | self.beside.keys() | {"csrfmiddlewaretoken"}
        refuse_stray(set(self.data) - known)
        self.full_clean()
        return self._filled(self._roots)

    def _filled(self, names: Iterable[str]) -> dict[str, Any]:
        filled = {}
        for name in names:
            field = self.values[name]
            if self._is_changing and self._is_untouched(name):
                value = field.had
            elif not field.children:
                value = self.cleaned_data[name]
            elif field.required or self._is_typed(field.children):
                value = self._around(field) | self._filled(field.children)
            else:  # an optional group in which nothing was typed is one that isn't there
                value = field.empty
            if value is not Absent:
                filled[field.key] = value
        return filled

    def _is_untouched(self, name: str) -> bool:
        field = self.values[name]
        if field.children:
            return all(self._is_untouched(child) for child in field.children)
        return field.is_as_shown(self[name].data)

    def _around(self, group: Value) -> dict[str, Any]:
        """What the document has in a group that no field shows."""
        shown = {self.values[name].key for name in group.children}
        return {key: value for key, value in group.had.items() if key not in shown} if _is_object(group.had) else {}

    def _is_typed(self, names: Iterable[str]) -> bool:
        return any(
            self._is_typed(self.values[name].children) or str(self.data.get(self.add_prefix(name), "")).strip()
            for name in names
        )

    def mark(self, error: DurableAgentsError, within: str, root: str = "") -> None:
        """Put what was wrong where it belongs: at its field, at the nearest group above it, or above the form. What an
        error calls `within` is `root` here, or the form's whole document."""
        self.full_clean()
        for problem in error.extra.get("errors", []):
            words = in_words(problem)
            name, near = str(problem.get("field", "")), None
            own = name if name in self.beside else name.partition(".")[0]
            if name == within or name.startswith(f"{within}."):
                name = ".".join(part for part in (root, name[len(within) + 1 :]) if part)
                near = self._nearest(name)
            elif own in self.beside and self.beside[own].label:
                self.aside.setdefault(own, Aside(self.beside[own].label, self.beside[own].id, [])).errors.append(words)
                continue
            elif name in self.fields:
                near = name
            self.add_error(near, words if near or not name else f"{name}: {words}")

    def _nearest(self, name: str) -> str | None:
        matching = [known for known in self.fields if name == known or name.startswith(f"{known}.")]
        return max(matching, key=len, default=None)


class _Maker:
    """Walks a schema. `fields` are those that it came by, by name."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions = schema.get("$defs", {})
        self.fields: dict[str, Value] = {}

    def group(self, path: str, schema: Mapping[str, Any], document: Any, *, depth: int) -> tuple[str, ...]:
        """Make the fields of an object, filled from a document; their names."""
        inner = document if _is_object(document) else {}
        required = schema.get("required", ())
        names = []
        for key, part in schema.get("properties", {}).items():
            name = f"{path}.{key}" if path else str(key)
            while name in self.fields:  # a key may hold a dot itself
                name += "_"
            names.append(name)
            is_unset = document is _UNSET
            shown = inner.get(key, None if is_unset else part.get("default"))
            field = self._make(name, key, part, shown, required=key in required, is_unset=is_unset, depth=depth + 1)
            field.had = inner.get(key, Absent)
            if _may_be_null(part) and (key in required or field.had is not Absent):
                field.empty = None
        return tuple(names)

    def _make(
        self, name: str, key: str, schema: Mapping[str, Any], shown: Any, *, required: bool, is_unset: bool,
        depth: int,
    ) -> Value:  # fmt: skip
        whole, is_nullable = self.resolved(schema), _may_be_null(schema)
        kind = "json" if depth > _MAX_DEPTH or len(self.fields) >= MOST_FIELDS else _kind(whole)
        if kind == "flag" and (is_nullable or is_unset):
            kind, whole = "choice", {**whole, "enum": [True, False]}  # or neither, which no box says
        own: dict[str, Any] = {"key": key, "required": required and not is_nullable, "shown": shown}
        if kind == "group":
            field: Value = Group(whole, **{**own, "shown": None}, widget=forms.HiddenInput())
            self.fields[name] = field
            document = _UNSET if is_unset or (shown is None and is_nullable) else shown
            field.children = self.group(name, whole, document, depth=depth)
        else:
            field = self.fields[name] = _field(_roomy(kind, shown), whole, own)
        return field

    def resolved(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema with references followed and "or null" taken off; what stands beside a reference wins."""
        whole = dict(schema)
        for _ in range(_MAX_DEPTH):
            if "$ref" in whole:
                target = self._definitions.get(whole.pop("$ref").rpartition("/")[2], {})
                whole = {**target, **whole}
            elif len(whole.get("allOf", ())) == 1:
                whole = {**whole.pop("allOf")[0], **whole}
            else:
                options = [option for option in whole.get("anyOf", ()) if option.get("type") != "null"]
                if len(options) != 1 or "anyOf" not in whole:
                    break
                del whole["anyOf"]
                whole = {**options[0], **whole}
        return whole


_UNSET = object()  # a group that isn't there: nothing stands in its fields, also not what would by itself


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _may_be_null(schema: Any) -> bool:
    options = schema.get("anyOf", [schema]) if isinstance(schema, dict) else []
    return any(isinstance(option, dict) and option.get("type") == "null" for option in options)


def _roomy(kind: str, shown: Any) -> str:
    """The kind of field that shows a text as it is: a line takes line breaks away, and one for e-mail what stands
    around."""
    if not isinstance(shown, str) or kind in ("json", "choice", "flag"):
        return kind
    if "\n" in shown or "\r" in shown:
        return "long"
    return "text" if kind == "email" and shown != shown.strip() else kind


def _field(kind: str, schema: Mapping[str, Any], own: dict[str, Any]) -> Value:
    """One field that is no group."""
    most = {"maxlength": schema["maxLength"]} if "maxLength" in schema else {}
    match kind:
        case "choice":
            return Choice(schema, choices=_choices(schema), **own)
        case "flag":
            return Flag(schema, widget=forms.CheckboxInput(), **{**own, "required": False})
        case "integer" | "decimal":
            return Integer(schema, widget=forms.TextInput(_DECIMAL), **own)
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


_MONO = {"class": "mono", "spellcheck": "false"}


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    if schema.get("enum"):
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    options = schema.get("anyOf") or schema.get("oneOf") or ()
    return [option["const"] for option in options] if options and all("const" in option for option in options) else []


def _kind(schema: Mapping[str, Any]) -> str:
    if _choices(schema):
        return "choice"
    types = {option.get("type") for option in schema.get("anyOf") or schema.get("oneOf") or ()} - {"null"}
    if types:
        return "decimal" if types <= {"integer", "string", "number"} and types & {"integer", "number"} else "json"
    match schema.get("type"):
        case "object":
            return "group" if schema.get("properties") else "json"
        case "string" if schema.get("format") in ("email", *_DATES):
            return "email" if schema["format"] == "email" else "date"
        case "string":
            return "long" if schema.get("maxLength", 0) > _LONG_TEXT else "text"
        case "integer" | "number" as kind:
            return str(kind)
        case "boolean":
            return "flag"
        case _:
            return "json"
