"""The fields of a form from a schema: each stands for one value of the document. What is typed is handed on as it was
typed, for the model to judge."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms

from ledger.web import strict_json

# Beyond 15 digits JSON readers disagree about the number: it is handed on as typed, for the model to judge.
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_PLAIN_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_MOST_HINT = 60  # characters of what a field is by itself


class Absent:
    """Of a field that was left empty and may be; of what a document doesn't have."""


def typed(value: Any) -> str:
    """A text as it was typed: a browser sends each line break as two characters, whichever it was shown."""
    return "" if value is None else str(value).replace("\r\n", "\n").replace("\r", "\n")


def text_in(schema: Mapping[str, Any], name: str) -> str:
    return text if isinstance(text := schema.get(name), str) else ""


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
        title = text_in(schema, "title") or key.replace("_", " ")
        super().__init__(
            required=required,
            label=title[:1].upper() + title[1:],
            help_text=text_in(schema, "description"),
            initial=self.text_of(shown),
            widget=widget,
        )
        self.key = key

    def text_of(self, shown: Any) -> Any:
        return "" if shown is None else shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)

    def validate(self, value: Any) -> None:
        """Nothing: whether it may be empty, or may be this, is the model's business."""

    def to_python(self, value: Any) -> Any:
        text = typed(value)
        if text.strip() or self.required:
            return self.read(text)
        return Absent if value is None else self.empty

    def is_as_shown(self, value: Any) -> bool:
        """Whether what came back is what was shown: nobody touched it."""
        return typed(value) == typed(self.initial)

    def read(self, text: str) -> Any:
        return text

    def give_room(self, text: str) -> None:
        """Have it show a text as it is: a line takes line breaks away, and one for e-mail what stands around."""
        if self.is_flag or not isinstance(self.widget, forms.widgets.Input):
            return
        if "\n" in text or "\r" in text:
            self.widget, self.is_wide = forms.Textarea({"rows": 3, "cols": False}), True
        elif self.widget.input_type == "email" and text != text.strip():
            self.widget = forms.TextInput()

    def say_default(self, default: Any) -> None:
        """Tell what it is where it is left empty."""
        self.widget.attrs["placeholder"] = f"if empty: {self.text_of(default)[:_MOST_HINT]}"


class Long(Value):
    is_wide = True


class Integer(Value):
    """An integer, or a decimal number that no float may come near: digits are a number, all else stays text. Where it
    may be a text as well, only what is written as numbers are is one."""

    may_be_text = False

    def read(self, text: str) -> Any:
        number = _PLAIN_INTEGER if self.may_be_text else _INTEGER
        return int(text) if number.fullmatch(text.strip()) else text


class Json(Value):
    """What is typed as JSON; what is none is handed on as text."""

    def text_of(self, shown: Any) -> Any:
        if isinstance(shown, str) and self.read(shown) != shown:
            return json.dumps(shown, ensure_ascii=False)  # "5" is another than 5
        return super().text_of(shown)

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
        self._said = {json.dumps(choice) for choice in choices if not isinstance(choice, str)}
        super().__init__(schema, widget=forms.Select(), **more)
        self.choices = {self.text_of(choice): choice for choice in choices}
        self._draw("")

    def _draw(self, blank: str) -> None:
        is_blank = not self.required or self.initial not in self.choices
        self.widget.choices = [*([("", blank)] if is_blank else []), *((text, text) for text in self.choices)]

    def text_of(self, shown: Any) -> Any:
        is_as_another = isinstance(shown, str) and shown in self._said
        return json.dumps(shown) if is_as_another else super().text_of(shown)

    def read(self, text: str) -> Any:
        return self.choices.get(text, text)

    def is_as_shown(self, value: Any) -> bool:
        return typed(value) == (self.initial if self.initial in self.choices else "")

    def say_default(self, default: Any) -> None:
        self._draw(f"if empty: {self.text_of(default)[:_MOST_HINT]}")


class Flag(Value):
    is_flag = True

    def text_of(self, shown: Any) -> Any:
        return shown is True

    def to_python(self, value: Any) -> Any:
        return bool(value)

    def is_as_shown(self, value: Any) -> bool:
        return bool(value) is self.initial

    def say_default(self, default: Any) -> None:
        """Nothing: a box is never empty."""


class Group(Value):
    """A document in the document: what it holds are fields of their own, `children` by name."""

    def to_python(self, value: Any) -> Any:
        return Absent

    def say_default(self, default: Any) -> None:
        """Nothing: its fields say theirs."""
