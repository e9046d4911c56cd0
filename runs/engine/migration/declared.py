"""What a version says of runs of an earlier one that are moved to it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from runs.engine.errors import DefinitionError

_VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Migration:
    """How runs of version `of` (`"1.0.0"`) go on as runs of the version that declares it.

    `nodes` maps each node of that version to one of this version (those left out keep their name); whoever moves runs
    confirms or changes it. `state(old)` makes the new state of the old one, both plain data, and may give a model;
    without it the state must fit as it is. It is called for a look as well as for the move, so it must do nothing else.
    It is no part of the fingerprint.
    """

    of: str
    nodes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    state: Callable[[dict[str, Any]], Any] | None = None


def check_migrations(graph_id: str, version: str, nodes: Iterable[str], declared: Iterable[Migration]) -> None:
    """Raises DefinitionError for what can't be meant."""
    known, seen = set(nodes), set[str]()
    for each in declared:
        if not isinstance(each, Migration) or not isinstance(each.of, str) or not _VERSION.fullmatch(each.of):
            raise DefinitionError(f"{graph_id}: {each!r} is no Migration of a version, such as Migration('1.0.0')")
        if each.of == version or each.of in seen:
            what = "is itself" if each.of == version else "has two"
            raise DefinitionError(f"{graph_id}: a migration of {each.of}, which it {what}")
        seen.add(each.of)
        if wrong := [name for name in each.nodes.values() if name not in known]:
            raise DefinitionError(f"{graph_id}: the migration of {each.of} leads to {wrong[0]!r}, which does not exist")
        if each.state is not None and (not callable(each.state) or inspect.iscoroutinefunction(each.state)):
            raise DefinitionError(f"{graph_id}: the migration of {each.of}: state must be a plain function")
