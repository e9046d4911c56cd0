"""Attributes of runs as pages and the API show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

from ledger.events import AttributesSet
from ledger.models import Head
from runs.engine.attributes import KINDS
from runs.models import Attribute


@dataclass(frozen=True, slots=True)
class Told:
    """One attribute of a run: foreign `texts`, or `words` of our own."""

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
        words = in_words(self.value)
        return f"-${words[1:]}" if words.startswith("-") and self.kind == "money" else self._dollar + words

    @property
    def _dollar(self) -> str:
        return "$" if self.kind == "money" else ""


def attributes_of(run_ids: Iterable[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return each run's attributes by name, in one query, as the API shows them."""
    return {run: {one.name: one.value for one in several} for run, several in told_of(run_ids).items()}


def told_of(run_ids: Iterable[UUID]) -> dict[UUID, list[Told]]:
    rows = Attribute.objects.filter(run_id__in=list(run_ids)).order_by("run_id", "name", "n")
    return {run_id: _told(row[1:] for row in several) for run_id, several in groupby(_texts(rows), lambda row: row[0])}


def of_head(head: Head | None) -> list[Told]:
    """Return the attributes of a run whose head is from `families.heads`."""
    rows = getattr(head, "found_by", None)
    return _told((str(name), str(kind), str(value)) for name, kind, value in rows or ())


def _told(rows: Iterable[tuple[str, str, str]]) -> list[Told]:
    each = groupby(rows, key=lambda row: row[:2])
    return [Told(name, kind, as_told(kind, [value for *_, value in values])) for (name, kind), values in each]


def set_by(events: Iterable[AttributesSet]) -> dict[str, Any]:
    texts: dict[str, tuple[str, list[str]]] = {}
    for event in events:
        texts = {name: known for name, known in texts.items() if name not in event.named}
        for name, kind, value in zip(event.names, event.kinds, event.values, strict=True):
            texts.setdefault(name, (kind, []))[1].append(value)
    return {name: as_told(kind, values) for name, (kind, values) in sorted(texts.items())}


def _texts(rows: Iterable[Attribute]) -> Iterator[tuple[UUID, str, str, str]]:
    for row in rows:
        value = row.word if row.word is not None else f"{row.number:f}" if row.number is not None else ""
        yield row.run_id, row.name, row.kind, value


def as_told(kind: str, texts: list[str]) -> Any:
    """Return values as the API gives them; a damaged row as it is, so that it hides no other."""
    try:
        return KINDS[kind].shown(texts)
    except (KeyError, ValueError, ArithmeticError):
        return texts


def in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
