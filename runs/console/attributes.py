"""Attributes on pages: fields of the start form, and the line on a run's page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from runs.console.forms.fields import Choice, Value
from runs.console.forms.form import ExtraField, PartForm
from runs.engine.agents import Agent
from runs.engine.attributes import Attribute, of_words
from runs.queries.shown_attributes import ShownAttribute
from runs.queries.shown_attributes import in_words as value_in_words

_NOTES = {
    "keywords": "separated by commas",
    "number": "a number",
    "money": "US dollars",
    "date": "YYYY-MM-DD",
}


class AttributeForm(PartForm):
    """Fields for an agent's attributes."""

    def __init__(
        self, agent: Agent, *, data: Mapping[str, str] | None = None, values: Iterable[tuple[str, ShownAttribute]] = ()
    ) -> None:
        super().__init__(data=data)
        known = {one.name: value_in_words(one.value) for _, one in values}
        for name, attribute in agent.attributes.items():
            self.fields[_field(name)] = _drawn(name, attribute, known.get(name))

    @property
    def is_filled(self) -> bool:
        return any(field.value() for field in self.all)


def _drawn(name: str, attribute: Attribute, text: str | None) -> Value:
    about = {"title": attribute.title, "description": _NOTES.get(attribute.kind, "")}
    if attribute.kind == "flag":
        words = {"yes": "true", "no": "false"}.get(text or "")
        return Choice(about, key=name, required=False, value=words, choices=["true", "false"])
    widget = forms.TextInput({"autocomplete": "off"})
    return Value(about, key=name, required=False, value=text, widget=widget)


def _field(name: str) -> str:
    return f"attributes.{name}"


def titled(agent: Agent | None, attributes: Iterable[ShownAttribute]) -> list[tuple[str, ShownAttribute]]:
    """Return a run's attributes with the titles that their agent gives them."""
    titles = {name: attribute.title for name, attribute in agent.attributes.items()} if agent else {}
    return [(titles.get(one.name) or one.title, one) for one in attributes]


def extra_fields(agent: Agent) -> dict[str, ExtraField]:
    """Return the attribute fields of the start form."""
    return {
        _field(name): ExtraField(attribute.title or name.replace("_", " ").capitalize(), f"f-attributes-{name}")
        for name, attribute in agent.attributes.items()
    }


def at_start(agent: Agent, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a sent start form in the API's format, without empty ones."""
    typed = {name: text for name in agent.attributes if (text := texts.get(_field(name), "").strip())}
    return {name: _value(agent.attributes[name], text) for name, text in typed.items()}


def _value(attribute: Attribute, text: str) -> Any:
    if attribute.is_list:
        return [word for word in map(str.strip, text.split(",")) if word]
    return of_words(attribute, text)
