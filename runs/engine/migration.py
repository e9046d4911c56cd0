"""Migrations and upgrade steps, which convert runs and states of earlier versions to this one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from runs.engine.canonical import plain
from runs.engine.errors import DefinitionError

Step = Callable[[Any], Any]


class UnknownFormat(ValueError):
    """This code can't read data with this format number."""


@dataclass(frozen=True)
class Formats:
    """The formats of one kind of stored data. `steps[n]` converts format n to n + 1, up to `now`.

    Raises ValueError for a missing step.
    """

    name: str
    now: int = 1
    steps: Mapping[int, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sorted(self.steps) != list(range(self.oldest, self.now)):
            known = ", ".join(map(str, sorted(self.steps))) or "none"
            raise ValueError(f"{self.name}: the steps to format {self.now} have a gap, or go beyond it: {known}")

    @property
    def oldest(self) -> int:
        """The oldest readable format."""
        return min(self.steps, default=self.now)

    def upgraded(self, number: object, thing: Any) -> Any:
        """Upgrade `thing` from format `number` to the current one. Raises UnknownFormat."""
        if isinstance(number, bool) or not isinstance(number, int):
            raise UnknownFormat(f"the {self.name} has the format {number!r}, which is not a number")
        if number > self.now:
            raise UnknownFormat(f"the {self.name} is of format {number}, but this version reads up to {self.now}")
        if number < self.oldest:
            raise UnknownFormat(
                f"the {self.name} is of format {number}, but the oldest readable format is {self.oldest}"
            )
        for n in range(number, self.now):
            thing = self.steps[n](thing)
        return thing


# The formats of a checkpoint (`schema_version`), and of a file of `checkpoints export`. The content of an event kind
# never changes; only its position in the file may change.
STATES = Formats("checkpoint")
FILES = Formats("checkpoint file")


_VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Migration:
    """Lets runs of version `of` (`"1.0.0"`) continue on the version that declares this migration.

    `nodes` maps old nodes to new ones (others keep their name); the operator who migrates runs confirms or changes the
    mapping. `state(old)` returns the new state, as plain data or a model, for the old one as plain data; without it the
    old state must fit. The function also runs for previews, so it must have no side effects. The migration is not part
    of the fingerprint.
    """

    of: str
    nodes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    state: Callable[[dict[str, Any]], Any] | None = None


def check_migrations(graph_id: str, version: str, nodes: Iterable[str], declared: Iterable[Migration]) -> None:
    """Raise DefinitionError for invalid migrations."""
    known, seen = set(nodes), set[str]()
    for each in declared:
        if not isinstance(each, Migration) or not isinstance(each.of, str) or not _VERSION.fullmatch(each.of):
            raise DefinitionError(
                f"{graph_id}: {each!r} is not a migration: give Migration('1.0.0') with the version it comes from"
            )
        if each.of == version or each.of in seen:
            what = "which is this version" if each.of == version else "which is declared twice"
            raise DefinitionError(f"{graph_id}: there is a migration of {each.of}, {what}: remove it")
        seen.add(each.of)
        if wrong := [name for name in each.nodes.values() if name not in known]:
            raise DefinitionError(
                f"{graph_id}: the migration of {each.of} leads to the node {wrong[0]!r}, which does not exist"
            )
        if each.state is not None and not _is_plain_function(each.state):
            raise DefinitionError(
                f"{graph_id}: the migration of {each.of}: state must be a plain function at module level"
            )


def upgrades_of(graph_id: str, upgraders: Mapping[int, Callable[[Any], Any]]) -> Formats:
    """Return the upgraders as steps up to the current schema number.

    Raises DefinitionError for gaps and invalid steps.
    """
    if not isinstance(upgraders, Mapping):
        raise DefinitionError(
            f"{graph_id}: upgraders={upgraders!r} is not a mapping: give one, such as {{1: from_one_to_two}}"
        )
    for number, step in upgraders.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise DefinitionError(f"{graph_id}: upgraders are numbered from 1, and {number!r} is not a valid number")
        if not _is_plain_function(step):
            raise DefinitionError(f"{graph_id}: upgrader {number} must be a plain module-level function of the state")
    now = max(upgraders, default=0) + 1
    missing = next((n for n in range(1, now) if n not in upgraders), None)
    if missing is not None:
        raise DefinitionError(
            f"{graph_id}: its upgraders lead to number {now}, but the step from {missing} to {missing + 1} is missing: "
            "add it, or states with that number can't be read"
        )
    return Formats(f"state of {graph_id}", now, {n: _given_plain(step) for n, step in upgraders.items()})


def _is_plain_function(given: object) -> bool:
    """Return whether this is a synchronous `def` or a lambda, not a generator, a partial or a callable object."""
    made_later = (
        inspect.iscoroutinefunction(given),
        inspect.isgeneratorfunction(given),
        inspect.isasyncgenfunction(given),
    )
    return inspect.isfunction(given) and not any(made_later)


def _given_plain(step: Callable[[Any], Any]) -> Callable[[Any], Any]:

    def upgrade(state: Any) -> Any:
        made = step(plain(state))
        return plain(made) if isinstance(made, BaseModel) else made

    return upgrade


def number_in(parts: Mapping[str, Any]) -> int:
    """Return the schema number of states written by a version with these `parts`."""
    return len(parts.get("upgraders") or ()) + 1
