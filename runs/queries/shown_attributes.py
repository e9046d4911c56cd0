"""Attributes of runs in the form that pages and the API show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ledger.events import AttributesSet
from ledger.models import Head
from runs.engine.attributes import KINDS


@dataclass(frozen=True, slots=True)
class ShownAttribute:
    """One attribute of a run.
    `texts` come from outside and are shown as data; `words` is text that this application writes."""

    name: str
    kind: str
    value: Any

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    @property
    def texts(self) -> list[str]:
        if self.kind == "keyword":
            return [str(self.value)]
        return [str(each) for each in self.value] if isinstance(self.value, list) else []

    @property
    def words(self) -> str:
        text, dollar = in_words(self.value), "$" if self.kind == "money" else ""
        return f"-{dollar}{text[1:]}" if dollar and text.startswith("-") else dollar + text


def of_head(head: Head | None) -> list[ShownAttribute]:
    """Return the attributes of a run whose head is from `families.heads`; none without an app that provides
    attributes."""
    rows = getattr(head, "attributes", None)
    return of_rows((str(name), str(kind), str(value)) for name, kind, value in rows or ())


def of_rows(rows: Iterable[tuple[str, str, str]]) -> list[ShownAttribute]:
    """Return a run's attributes from their names, kinds and values, in this order."""
    each = groupby(rows, key=lambda row: row[:2])
    return [
        ShownAttribute(name, kind, _values_for_api(kind, [row[2] for row in found])) for (name, kind), found in each
    ]


def set_by(events: Iterable[AttributesSet]) -> dict[str, Any]:
    """Return the attributes that these events set, in the form that the API shows."""
    texts: dict[str, tuple[str, list[str]]] = {}
    for event in events:
        texts = {name: known for name, known in texts.items() if name not in event.named}
        for name, kind, value in zip(event.names, event.kinds, event.values, strict=True):
            texts.setdefault(name, (kind, []))[1].append(value)
    return {name: _values_for_api(kind, values) for name, (kind, values) in sorted(texts.items())}


def _values_for_api(kind: str, texts: list[str]) -> Any:
    """Return values in the form that the API returns.
    A damaged row is returned unchanged, so that the other rows can be shown."""
    try:
        return KINDS[kind].shown(texts)
    except (KeyError, ValueError, ArithmeticError):
        return texts


def in_words(value: Any) -> str:
    """Return a value as text for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
