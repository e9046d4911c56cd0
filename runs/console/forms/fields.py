"""Fields of a form from a schema, one per value of the document. Values are passed on as typed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms

from ledger.web import strict_json

# JSON parsers disagree about numbers of more than 15 digits, so these are passed on as text.
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_PLAIN_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_MAX_HINT = 60  # limit of characters of a default in a placeholder


class Absent:
    """Marks an empty optional field, or a value that the document doesn't contain."""


def typed(value: Any) -> str:
    """Return text as it was typed. Browsers send each line break as two characters (CR LF), which become one."""
    return "" if value is None else str(value).replace("\r\n", "\n").replace("\r", "\n")


def text_in(schema: Mapping[str, Any], name: str) -> str:
    return text if isinstance(text := schema.get(name), str) else ""


class Value(forms.Field):
    """One value of the document.
    `had` is the old value in a document that is being changed, `empty` the value of an empty field."""

    had: Any = Absent
    empty: Any = Absent
    is_wide = False
    is_flag = False
    note = ""
    children: tuple[str, ...] = ()

    def __init__(
        self, schema: Mapping[str, Any], *, key: str, required: bool, value: Any, widget: forms.Widget
    ) -> None:
        title = text_in(schema, "title") or key.replace("_", " ")
        super().__init__(
            required=required,
            label=title[:1].upper() + title[1:],
            help_text=text_in(schema, "description"),
            initial=self.text_of(value),
            widget=widget,
        )
        self.key = key

    def text_of(self, value: Any) -> Any:
        return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def validate(self, value: Any) -> None:
        """Do nothing, because the model validates."""

    def to_python(self, value: Any) -> Any:
        text = typed(value)
        if text.strip() or self.required:
            return self.read(text)
        return Absent if value is None else self.empty

    def is_as_shown(self, value: Any) -> bool:
        """Return whether the field was sent back unchanged."""
        return typed(value) == typed(self.initial)

    def read(self, text: str) -> Any:
        return text

    def give_room(self, text: str) -> None:
        """Choose a widget that preserves the text.
        A plain input drops line breaks, and an e-mail input also drops surrounding spaces."""
        if self.is_flag or not isinstance(self.widget, forms.widgets.Input):
            return
        if "\n" in text or "\r" in text:
            self.widget, self.is_wide = forms.Textarea({"rows": 3, "cols": False}), True
        elif self.widget.input_type == "email" and text != text.strip():
            self.widget = forms.TextInput()

    def say_default(self, default: Any) -> None:
        """Show the default as a placeholder."""
        self.widget.attrs["placeholder"] = f"if empty: {self.text_of(default)[:_MAX_HINT]}"


class Long(Value):
    is_wide = True


class Integer(Value):
    """An integer, or a decimal that must not become a float.
    Digits become a number; anything else stays text. If the value may also be text, only text in the form of a JSON
    number becomes a number."""

    may_be_text = False

    def read(self, text: str) -> Any:
        number = _PLAIN_INTEGER if self.may_be_text else _INTEGER
        return int(text) if number.fullmatch(text.strip()) else text


class Json(Value):
    """A value typed as JSON; anything else is passed on as text."""

    def text_of(self, value: Any) -> Any:
        if isinstance(value, str) and self.read(value) != value:
            return json.dumps(value, ensure_ascii=False)  # the text "5" differs from the number 5
        return super().text_of(value)

    def read(self, text: str) -> Any:
        try:
            return strict_json.loads(text.encode("utf-8", "replace"))
        except strict_json.MalformedJSON:
            return text


class Document(Json):
    is_wide = True
    note = "as JSON"


class Choice(Value):
    """One item of a list. The field's text represents the item, which may be a number."""

    widget: forms.Select

    def __init__(self, schema: Mapping[str, Any], *, choices: list[Any], **more: Any) -> None:
        self._said = {json.dumps(choice) for choice in choices if not isinstance(choice, str)}
        super().__init__(schema, widget=forms.Select(), **more)
        self.choices = {self.text_of(choice): choice for choice in choices}
        self._draw("")

    def _draw(self, blank: str) -> None:
        is_blank = not self.required or self.initial not in self.choices
        self.widget.choices = [*([("", blank)] if is_blank else []), *((text, text) for text in self.choices)]

    def text_of(self, value: Any) -> Any:
        is_as_another = isinstance(value, str) and value in self._said
        return json.dumps(value) if is_as_another else super().text_of(value)

    def read(self, text: str) -> Any:
        return self.choices.get(text, text)

    def is_as_shown(self, value: Any) -> bool:
        return typed(value) == (self.initial if self.initial in self.choices else "")

    def say_default(self, default: Any) -> None:
        self._draw(f"if empty: {self.text_of(default)[:_MAX_HINT]}")


class Flag(Value):
    is_flag = True

    def text_of(self, value: Any) -> Any:
        return value is True

    def to_python(self, value: Any) -> Any:
        return bool(value)

    def is_as_shown(self, value: Any) -> bool:
        return bool(value) is self.initial

    def say_default(self, default: Any) -> None:
        """Do nothing, because a checkbox is never empty."""


class Group(Value):
    """A nested document whose fields are `children`, by name."""

    def to_python(self, value: Any) -> Any:
        return Absent

    def say_default(self, default: Any) -> None:
        """Do nothing, because the nested fields show their own defaults."""
