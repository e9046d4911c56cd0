"""What runs are found by, as pages and the API tell it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

from ledger.events import AttributesSet
from runs.engine.attributes.kinds import KINDS
from runs.models import Attribute


@dataclass(frozen=True, slots=True)
class Told:
    """One attribute of a run, as a page shows it: foreign `texts`, or else `words` of our own making."""

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
    """Each run's, by name, in one query: texts, lists of texts, numbers, amounts as text, days as text, flags."""
    return {run: {one.name: one.value for one in several} for run, several in told_of(run_ids).items()}


def told_of(run_ids: Iterable[UUID]) -> dict[UUID, list[Told]]:
    """The same as pages show it."""
    rows = Attribute.objects.filter(run_id__in=list(run_ids)).order_by("run_id", "name", "n")
    found: dict[UUID, list[Told]] = {}
    for (run_id, name, kind), values in groupby(_texts(rows), key=lambda row: row[:3]):
        found.setdefault(run_id, []).append(Told(name, kind, as_told(kind, [value for *_, value in values])))
    return found


def set_by(events: Iterable[AttributesSet]) -> dict[str, Any]:
    """What events set, in their order, as the rows will say it."""
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
    """Values as the API gives them. A row that was damaged is told as it stands, and hides no other."""
    try:
        return KINDS[kind].shown(texts)
    except (KeyError, ValueError, ArithmeticError):
        return texts


def in_words(value: Any) -> str:
    """A value in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
