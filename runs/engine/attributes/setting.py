"""What an agent declares, and what is set of it: refused by name before anything is written, else one event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ledger.events import AttributesSet
from runs.engine.attributes.kinds import Attribute
from runs.engine.canonical import plain

MOST = 16  # attributes of one agent
# What a search has words of its own for: see runs/queries/attributes/grammar.py.
RESERVED = frozenset({"and", "or", "not", "in", "has", "is", "set", "true", "false", "created_at"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
Declared = Mapping[str, Attribute]


class BadAttributes(ValueError):
    """What was to be set can't be. `problems` names each, as (name, what is wrong, what would be right)."""

    def __init__(self, problems: list[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(f"{name} {problem}" for name, problem, _ in problems))
        self.problems = problems


def misdeclared(attributes: Any) -> str | None:
    """What is wrong with an agent's declaration; None if it is one."""
    if not isinstance(attributes, Mapping):
        return "attributes are a mapping from a name to a type, such as Keyword()"
    if len(attributes) > MOST:
        return f"there are {len(attributes)} attributes; at most {MOST} are kept of a run"
    for name, attribute in attributes.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return f"attribute name {name!r} is not lower_snake_case of at most 63 letters"
        if name in RESERVED:
            return f"attribute name {name!r} is a word of searches: give it another"
        if not isinstance(attribute, Attribute) or not attribute.kind:
            return f"attribute {name!r} is {attribute!r}: give a type, such as Keyword()"
    return None


def setting(
    declared: Declared, given: Mapping[str, Any], *, by: str, slot: str | None = None, requested_hash: str = ""
) -> AttributesSet:
    """The event that sets what is `given`; None unsets. Raises BadAttributes naming all that is wrong."""
    problems, values = list[tuple[str, str, str]](), list[tuple[str, str, str]]()
    for name in sorted(given, key=str):
        attribute = declared.get(name)
        if attribute is None:
            problems.append((str(name)[:64], "is no attribute of this agent", _known(declared)))
            continue
        try:
            texts = [] if given[name] is None else attribute.texts(given[name])
        except ValueError as error:
            problems.append((name, str(error), f"give {attribute.called}, such as {attribute.like}"))
            continue
        values += [(name, attribute.kind, text) for text in texts]
    if problems:
        raise BadAttributes(problems)
    names, kinds, texts = ([value[i] for value in values] for i in range(3))
    return AttributesSet(
        slot=slot,
        by=by,
        named=sorted(given),
        names=names,
        kinds=kinds,
        values=texts,
        requested_hash=requested_hash,
        payload=None if slot is None else {"arguments": asked(given)},
    )


def asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given as plain data, for the record and its digest: amounts and days as texts."""
    return {str(name): _told(value) for name, value in given.items()}


def _told(value: Any) -> Any:
    if isinstance(value, tuple):
        value = list(value)
    try:
        return plain(value)
    except ValueError:
        return str(value)


def _known(declared: Declared) -> str:
    return f"it has {', '.join(sorted(declared))}" if declared else "it declares none"
