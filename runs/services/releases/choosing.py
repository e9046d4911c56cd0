"""The version that a start gets: the named one; else the newest open one, or by a ramp, stably by the start's key.
The same key always gets the same side, and raising a share moves keys only to the newer version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db import connection

from ledger import events as e
from ledger.errors import DurableAgentsError
from ledger.protected import ChangedOutside, wrong_in
from runs.engine.agents import Agent, registry
from runs.fleet.members import FRESH_SECONDS
from runs.models import Ramp, RampStart, Run
from runs.protected import gate_proofs

PLACES = 10_000
# With proofs of the agent's gates, and of those that were deleted outside the application.
_RELEASE = f"SELECT runs_release(%s, %s), {gate_proofs('t.agent = %s')}"


class VersionClosed(DurableAgentsError):
    """The version is closed to new starts."""

    status, code, title = 409, "version-closed", "Closed to new starts"

    def __init__(self, asked: str, still_open: list[str]) -> None:
        what = "is closed to new starts" if "@" in asked else "has no version that is open to new starts"
        hint = f" Open: {', '.join(still_open)}." if still_open else " An operator can open one."
        super().__init__(f"{asked} {what}. Nothing was started.{hint}", open=still_open)


class StartsStopped(VersionClosed):
    """An operator has stopped new starts of the agent."""

    status, code, title = 409, "starts-stopped", "New starts are stopped"

    def __init__(self, agent: str, halt: Mapping[str, Any]) -> None:
        DurableAgentsError.__init__(
            self,
            f"{halt['by']} stopped new starts of {agent} at "
            f"{halt['since'][:16].replace('T', ' ')} UTC: {halt['why'].rstrip('.')}. Nothing was started.",
            open=[],
        )


class Key(NamedTuple):
    """The identity that keeps a start on its side of a ramp: kind and text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for an agent's starts during this transaction."""

    closed: frozenset[str]
    ramp: Mapping[str, Any] | None
    is_served: bool
    halts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, name: str) -> Rules:
        """Return the current rules, locked until the transaction ends.
        Raises ChangedOutside if a version was closed or opened outside the application."""
        with connection.cursor() as cursor:
            cursor.execute(_RELEASE, [name, FRESH_SECONDS, name])
            row, gates = cursor.fetchone()
        if changed := wrong_in(gates):
            raise ChangedOutside(*changed)
        told = _read(row)
        halts = tuple(told.get("halts", ()))
        return cls(frozenset(told["closed"]), told.get("ramp"), bool(told.get("is_served")), halts)

    def refuse(self, name: str) -> None:
        """Raises StartsStopped if new starts are refused."""
        for halt in self.halts:
            if halt["kind"] == "starts" and halt["refuses"]:
                raise StartsStopped(name, halt)

    def halted(self, graph_id: str, tags: Iterable[str]) -> Mapping[str, Any] | None:
        """Return the oldest halt that covers a new run of a version, as shown to its starter."""
        known = set(tags)
        for halt in self.halts:
            is_under = halt["scope"] in ("all", "agent") or halt["key"] == graph_id
            if is_under or (halt["scope"] == "tag" and halt["key"] in known):
                return {name: halt[name] for name in ("kind", "scope", "key", "by", "why", "since")}
        return None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The version that a start gets; `told` is the event if a ramp decided."""

    agent: Agent
    told: e.VersionAssigned | None = None
    halted: Mapping[str, Any] | None = None  # the halt that covers its run

    @property
    def events(self) -> list[e.VersionAssigned]:
        return [] if self.told is None else [self.told]

    def store(self, run: Run) -> None:
        """Store the assignment for the ramp's figures, in the start's transaction."""
        if (told := self.told) is not None:
            RampStart.objects.create(
                run_id=run.pk, ramp_id=told.ramp, is_new=told.is_new, why=told.why, place=told.place, at=run.created_at
            )


def choose(reference: str, *, tags: Iterable[str] | Mapping[str, str], key: Key) -> Chosen:
    """Choose the version of a start.
    Raises UnknownAgent, UnknownVersion, VersionClosed, StartsStopped, ChangedOutside."""
    asked = registry.find(reference)
    rules = Rules.of(asked.name)
    rules.refuse(asked.name)
    chosen = _chosen(reference, asked, rules, tags, key)
    named = {*tags, *_named(tags)}
    return replace(chosen, halted=rules.halted(chosen.agent.graph_id, named)) if rules.halts else chosen


def _chosen(reference: str, asked: Agent, rules: Rules, tags: Iterable[str] | Mapping[str, str], key: Key) -> Chosen:
    versions = registry.versions(asked.name)
    still_open = [agent for agent in versions if agent.version not in rules.closed]
    if "@" in reference:
        if asked.version in rules.closed:
            raise VersionClosed(reference, [agent.version for agent in still_open])
        return Chosen(asked)
    if rules.ramp is not None:
        return _ramped(rules.ramp, rules.is_served, tags, key)
    if not still_open:
        raise VersionClosed(reference, [])
    return Chosen(still_open[0])


def _ramped(ramp: Mapping[str, Any], is_served: bool, tags: Iterable[str] | Mapping[str, str], key: Key) -> Chosen:
    """Return a start's side of a ramp. Raises UnknownVersion if this process lacks that version."""
    name, newer = str(ramp["agent"]), f"{ramp['agent']}@{ramp['to_version']}"
    place, tag = place_of(ramp["id"], key), next((t for t in _named(tags) if t in ramp["tags"]), "")
    is_new, why = bool(tag) or place < ramp["share"], "tag" if tag else "share"
    if ramp["state"] != Ramp.State.ON:
        is_new, why = False, "halted"
    elif is_new and newer not in registry.graph_ids():
        is_new, why = False, "unknown"
    elif is_new and not is_served:
        is_new, why = False, "unserved"
    agent = registry.find(newer if is_new else f"{name}@{ramp['from_version']}")
    return Chosen(
        agent,
        e.VersionAssigned(
            ramp=ramp["id"],
            from_version=ramp["from_version"],
            to_version=ramp["to_version"],
            is_new=is_new,
            why=why,
            share=ramp["share"],
            place=place,
            key=key.kind,
            tag=tag,
        ),
    )


_SERVED = """
    SELECT DISTINCT split_part(s.graph_id, '@', 2) FROM runs_served s JOIN runs_process p ON p.id = s.worker
    WHERE split_part(s.graph_id, '@', 1) = %s AND NOT s.is_quarantined AND NOT s.is_draining AND p.ended_at IS NULL
      AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => %s)
      AND NOT EXISTS (SELECT 1 FROM runs_versiongate g
                      WHERE g.agent = %s AND g.version = split_part(s.graph_id, '@', 2) AND g.is_closed)"""


def elsewhere(reference: str) -> str:
    """Return a newer open version that other workers serve and this process lacks; "" if there is none."""
    if "@" in reference:
        return ""
    newest = registry.versions(reference)[0]
    with connection.cursor() as cursor:
        cursor.execute(_SERVED, [reference, FRESH_SECONDS, reference])
        newer = [version for (version,) in cursor.fetchall() if ordered(version) > ordered(newest.version)]
    return f"{reference}@{max(newer, key=ordered)}" if newer else ""


def ordered(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def place_of(ramp_id: int, key: Key) -> int:
    """Return a key's place among 10,000, stable for a ramp and different between ramps."""
    named = hashlib.sha256(f"ramp\n{ramp_id}\n{key.text}".encode()).digest()
    return int.from_bytes(named[:8], "big") % PLACES


def _named(tags: Iterable[str] | Mapping[str, str]) -> list[str]:
    return [f"{name}:{value}" for name, value in tags.items()] if isinstance(tags, Mapping) else list(tags)


def _read(told: Any) -> dict[str, Any]:
    return dict(json.loads(told) if isinstance(told, str) else told)
