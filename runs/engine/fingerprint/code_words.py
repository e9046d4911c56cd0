"""How code differs, in words for people: which helper of which module, and of numbers which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MOST_NUMBERS = 3
_MOST_HELPERS = 4
_NOT_KNOWN: Mapping[str, Any] = {}


class Code:
    """Two tables of definitions. Of the schemes before the third there are none: then it is only known that code
    changed."""

    def __init__(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        table, other = before.get("code"), now.get("code")
        self._before = table if isinstance(table, Mapping) else {}
        self._now = other if isinstance(other, Mapping) else {}
        self._told = set(_told_by_fields(before, now))

    def said(self, was: Any, ist: Any, words: str = "code", number: str = "") -> Iterator[str]:
        """What differs between two pieces of code with all that they name. `words` is what they are called, `number`
        what a number in them is."""
        if was is None or ist is None:
            if was is not ist:
                yield f"{words} {'added' if was is None else 'dropped'}"
            return
        if not isinstance(was, Mapping) or not isinstance(ist, Mapping):
            if was != ist:
                yield f"{words} changed"
            return
        helpers = list(self._helpers(was, ist))
        values = [each for each in helpers if each[1] == "value"]
        # A value is told by its own name; where code changed, that is said with the helpers it changed in.
        for key, _, steps in values:
            label = _called(key)
            if number:
                yield f"{words} {label.lower().strip('_').replace('_', ' ')} {steps or 'changed'}"
            else:
                yield f"{label} {steps or 'changed'} ({_file(key)})"
        told = [self._helper(key, kind, steps) for key, kind, steps in helpers if kind != "value"]
        more = f" and {len(told) - _MOST_HELPERS} more" if len(told) > _MOST_HELPERS else ""
        is_changed = was.get("is") != ist.get("is")
        if is_changed and not told and (steps := _steps(was, ist)):
            yield f"{number or words} {steps}"
        elif is_changed or told or (was.get("names") != ist.get("names") and not values):
            inside = f" ({', '.join(told[:_MOST_HELPERS])}{more})" if told else ""
            yield f"{words} changed{inside}"

    def _helpers(self, was: Mapping[str, Any], ist: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """The definitions within reach of both that differ: key, kind, and the numbers where it is only those."""
        one, other = _reached(was, self._before), _reached(ist, self._now)
        for key in sorted(one & other):
            a, b = self._before.get(key, _NOT_KNOWN), self._now.get(key, _NOT_KNOWN)
            if a.get("is") != b.get("is") and key not in self._told:
                yield key, str(b.get("kind", "value")), _steps(a, b)

    def _helper(self, key: str, kind: str, steps: str) -> str:
        what = f"helper {_called(key)}()" if kind == "function" else f"{kind} {_called(key)}"
        return f"{what} in {_file(key)}{f': {steps}' if steps else ''}"


def _told_by_fields(was: Any, ist: Any) -> Iterator[str]:
    """The classes of models whose fields differ: that is said of the model, and needn't be of everybody who uses it."""
    if not isinstance(was, Mapping) or not isinstance(ist, Mapping):
        return
    if "schema" in was and "schema" in ist and isinstance(ist.get("code"), Mapping):
        if was["schema"] != ist["schema"]:
            yield from ist["code"].get("names", ())
        return
    for name in was.keys() & ist.keys():
        yield from _told_by_fields(was[name], ist[name])


def _reached(entry: Mapping[str, Any], table: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = list(entry.get("names", ()))
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting.extend(table.get(key, _NOT_KNOWN).get("names", ()))
    return found


def _steps(was: Mapping[str, Any], ist: Mapping[str, Any]) -> str:
    """The numbers that differ, where nothing else does."""
    one, other = was.get("numbers"), ist.get("numbers")
    if not one or not other or was.get("around") != ist.get("around") or len(one) != len(other):
        return ""
    steps = [f"{a} → {b}" for a, b in zip(one, other, strict=True) if a != b]
    return ", ".join(steps) if 0 < len(steps) <= _MOST_NUMBERS else ""


def _called(key: str) -> str:
    return key.rpartition(".")[2]


def _file(key: str) -> str:
    return key.rpartition(".")[0].replace(".", "/") + ".py"
