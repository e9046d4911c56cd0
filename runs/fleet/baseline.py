"""Fingerprints of agent versions in a file next to the code.
With them, CI refuses changes without a version bump. Needs no database."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.engine.agents import Agent
from runs.engine.fingerprint import digest, scheme_of
from runs.engine.migration import number_in
from runs.fleet.version_changes import Change, change_of

FILE = "agents.lock.json"
FORMAT = 1
_KIND = "durable-agents baseline"
_MAX_BYTES = 64_000_000
_GRAPH_ID = re.compile(r"[a-z][a-z0-9-]{0,63}@\d+\.\d+\.\d+")
_ABOUT = "Recorded agent versions. Written by `manage.py agents check --write`: commit it and do not edit it."


class BadBaseline(Exception):
    """The file is not a baseline that this release can read. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One version in the baseline."""

    fingerprint: str
    parts: Mapping[str, Any]


@dataclass(slots=True)
class Compared:
    """A baseline compared with this process's agents.
    `lower` are new versions to which older states can't be migrated."""

    changed: list[Change] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    lower: list[str] = field(default_factory=list)


def read(path: Path) -> dict[str, Recorded]:
    """Return a baseline's versions by graph id.
    Raises BadBaseline, and FileNotFoundError if there is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadBaseline(f"{path} can't be read: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise BadBaseline(f"{path} is larger than {_MAX_BYTES // 1_000_000} MB, so it is not a baseline")
    try:
        whole = json.loads(raw.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadBaseline(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(whole, dict) or whole.get("kind") != _KIND:
        raise BadBaseline(f"{path} is not a baseline of agents")
    if whole.get("format") != FORMAT or isinstance(whole["format"], bool):
        raise BadBaseline(
            f"{path} has format {whole.get('format')!r}, but this release reads {FORMAT}: another release wrote it"
        )
    agents = whole.get("agents")
    if not isinstance(agents, dict):
        raise BadBaseline(f"{path} is damaged: it lists no agents")
    return {graph_id: _recorded(path, graph_id, entry) for graph_id, entry in agents.items()}


def compare(recorded: Mapping[str, Recorded], agents: Iterable[Agent]) -> Compared:
    """Return which versions are changed, new, missing or unchanged."""
    found, known = Compared(), {agent.graph_id: agent for agent in agents}
    for graph_id, agent in known.items():
        if graph_id not in recorded:
            found.new.append(graph_id)
        elif agent.is_own(recorded[graph_id].fingerprint):
            found.same.append(graph_id)
        else:
            found.changed.append(change_of(agent, recorded[graph_id].fingerprint, recorded[graph_id].parts))
    found.gone = sorted(recorded.keys() - known.keys())
    numbers = {name: number_in(each.parts) for name, each in recorded.items()}
    numbers |= {name: agent.schema_version for name, agent in known.items()}
    found.lower = [line for name in found.new for line in _lower(known[name], numbers)]
    return found


def _lower(agent: Agent, numbers: Mapping[str, int]) -> list[str]:
    """Return a problem if the version's state number is lower than that of an older version.
    A migration function that converts states back solves it."""
    graph_id = agent.graph_id
    older = [each for each in numbers if _agent(each) == _agent(graph_id) and _order(each) < _order(graph_id)]
    highest = max(older, key=lambda each: (numbers[each], _order(each)), default=graph_id)
    takes_back = agent.migration_of(highest.partition("@")[2]).state is not None
    if numbers[highest] <= numbers[graph_id] or takes_back:
        return []
    return [
        f"{graph_id}: its state has number {numbers[graph_id]}, and that of {highest} has {numbers[highest]}: "
        "take over its upgraders, or declare a Migration of it with a function; no run of it can be moved here before"
    ]


def _agent(graph_id: str) -> str:
    return graph_id.partition("@")[0]


def _order(graph_id: str) -> tuple[int, ...]:
    return tuple(map(int, graph_id.partition("@")[2].split(".")))


def write(path: Path, recorded: Mapping[str, Recorded], agents: Sequence[Agent], forget: Iterable[str] = ()) -> None:
    """Add these agents to the recorded ones, except those to forget, and replace the file atomically.
    Raises OSError."""
    leaving = set(forget)
    entries = {name: {"fingerprint": r.fingerprint, "parts": r.parts} for name, r in recorded.items()}
    entries |= {agent.graph_id: {"fingerprint": agent.fingerprint(), "parts": agent.parts()} for agent in agents}
    kept = {name: entry for name, entry in entries.items() if name not in leaving}
    whole = {"kind": _KIND, "format": FORMAT, "about": _ABOUT, "agents": kept}
    text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _recorded(path: Path, graph_id: str, entry: Any) -> Recorded:
    if not _GRAPH_ID.fullmatch(graph_id):
        raise BadBaseline(f"{path} is damaged: {graph_id[:80]!r} is not an agent's name and version")
    parts = entry.get("parts") if isinstance(entry, dict) else None
    fingerprint = entry.get("fingerprint") if isinstance(entry, dict) else None
    if not isinstance(parts, dict) or not isinstance(fingerprint, str):
        raise BadBaseline(f"{path} is damaged: {graph_id} lacks its fingerprint or its parts")
    scheme = scheme_of(fingerprint)
    if scheme is None:
        raise BadBaseline(
            f"{path} was written by a newer release: the fingerprint of {graph_id} has a scheme unknown here"
        )
    if digest(parts, scheme) != fingerprint:
        raise BadBaseline(f"{path} is damaged: the parts of {graph_id} don't match its fingerprint")
    return Recorded(fingerprint, parts)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Raises ValueError for duplicate names, which a bad merge leaves behind."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(name for n, (name, _) in enumerate(pairs) if name in dict(pairs[:n]))
        raise ValueError(f"{twice[:80]!r} is listed twice")
    return made


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number")
