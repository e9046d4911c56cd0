"""When a run begins, and under which key of the business: its part of the start form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django import forms

from ledger.errors import DurableAgentsError
from ledger.web.page_forms import in_words
from runs.console.forms.fields import Value
from runs.console.forms.form import Beside, Bound

_LABELS = {
    "business_key": "Business key",
    "on_conflict": "If a run of the key lives",
    "start_at": "Not before (UTC)",
    "start_before": "Not later than (UTC)",
}
_HELP = {"business_key": "such as an invoice or a customer: one run of an agent and a key lives"}
_RULES = [
    ("", "refuse this start"),
    ("join", "go to that run"),
    ("queue", "begin after it"),
    ("replace", "cancel it and begin"),
]
_TIMES = ("start_at", "start_before")
_LOCAL = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?")


class WhenForm(forms.Form):
    """The fields as the API's body calls them. What is typed is handed on for the body's own rules to judge; `mark`
    puts their words at the fields."""

    bound_field_class = Bound

    def __init__(self, *, data: Mapping[str, str] | None = None) -> None:
        super().__init__(data=data)
        for name, label in _LABELS.items():
            schema = {"title": label, "description": _HELP.get(name, "")}
            self.fields[name] = Value(schema, key=name, required=False, shown=None, widget=_widget(name))

    @property
    def all(self) -> list[Bound]:
        bound: Any = [self[name] for name in self.fields]
        return bound  # type: ignore[no-any-return]

    @property
    def wrong(self) -> list[Bound]:
        """The fields with something wrong in them."""
        return [field for field in self.all if field.errors]

    def mark(self, error: DurableAgentsError) -> None:
        """Put what was wrong at its field; the rest is said elsewhere on the page."""
        self.full_clean()
        for problem in error.extra.get("errors", []):
            if problem.get("field") in self.fields:
                self.add_error(str(problem["field"]), in_words(problem))


def _widget(name: str) -> forms.Widget:
    if name == "on_conflict":
        return forms.Select(choices=_RULES)
    if name in _TIMES:
        return forms.TextInput({"placeholder": "2026-11-22 09:00", "autocomplete": "off"})
    return forms.TextInput({"maxlength": 64, "autocomplete": "off"})


def beside() -> dict[str, Beside]:
    """These fields, for the form that they stand beside."""
    return {name: Beside(label, f"f-{name}") for name, label in _LABELS.items()}


def typed(texts: Mapping[str, str]) -> dict[str, str]:
    """What was typed, as the API takes it; a field that was left empty is left out. Times are UTC, as pages show
    them."""
    found = {name: text for name in _LABELS if (text := texts.get(name, "").strip())}
    return {name: f"{text}Z" if name in _TIMES and _LOCAL.fullmatch(text) else text for name, text in found.items()}
