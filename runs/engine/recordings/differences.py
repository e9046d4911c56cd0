"""The first place at which code does something else than the record says, in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST = 400


@dataclass(frozen=True, slots=True)
class Difference:
    """At `slot` (a place of a call; empty for the visit as a whole) the record has `recorded`, and the code `asked`."""

    slot: str
    recorded: str
    asked: str
    note: str = ""

    def __str__(self) -> str:
        where = f"at {self.slot} " if self.slot else ""
        note = f" ({self.note})" if self.note else ""
        return f"{where}the record says: {self.recorded}; the code: {self.asked}{note}"


def call_in_words(what: str, arguments: Any = None) -> str:
    """A call as one reads it."""
    if arguments is None:
        return what
    return f"{what}({shown(arguments)})"


def shown(value: Any) -> str:
    """A value in one line, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return text if len(text) <= MOST else f"{text[:MOST]}…"


def first_misfit(recorded: Any, found: Any, placeholders: Sequence[str] = (), path: str = "") -> str | None:
    """Where two values differ, by path; None where they don't. A text in which something was redacted fits any text."""
    where = path or "value"
    if isinstance(recorded, dict) and isinstance(found, dict):
        for name in sorted({*recorded, *found}):
            if name not in found or name not in recorded:
                return f"{where}.{name} is only {'on record' if name in recorded else 'in what the code gives'}"
            misfit = first_misfit(recorded[name], found[name], placeholders, f"{path}.{name}" if path else str(name))
            if misfit is not None:
                return misfit
        return None
    if isinstance(recorded, list) and isinstance(found, list):
        if len(recorded) != len(found):
            return f"{where} has {len(recorded)} on record, and {len(found)} in what the code gives"
        pairs = enumerate(zip(recorded, found, strict=True))
        misfits = (first_misfit(a, b, placeholders, f"{path}[{i}]") for i, (a, b) in pairs)
        return next((misfit for misfit in misfits if misfit is not None), None)
    if (
        isinstance(recorded, str)
        and isinstance(found, str)
        and any(each == recorded or (len(each) > 3 and each in recorded) for each in placeholders)
    ):
        return None
    if type(recorded) is not type(found) or recorded != found:
        return f"{where} is {shown(recorded)} on record, and {shown(found)} in what the code gives"
    return None


def place_key(slot: str) -> tuple[tuple[int, ...], ...]:
    """Slots in the order of their places."""
    return tuple(tuple(int(n) for n in part.split(".")) for part in slot.split("/")) if slot[:1].isdigit() else ()
