"""The version that a start gets.

`name@version` gets that version, unless it is closed to new starts. A bare name gets the newest one that is open, or
while a ramp is on the side of it that the start comes out on: the same key comes out on the same side, whoever asks and
however often, and a share that is raised moves starts to the newer version only.
"""

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
# With the proofs of the agent's gates, and of those that were deleted outside the application.
_RELEASE = f"SELECT runs_release(%s, %s), {gate_proofs('t.agent = %s')}"


class VersionClosed(DurableAgentsError):
    """New starts of the version are stopped."""

    status, code, title = 409, "version-closed", "The version takes no new starts"

    def __init__(self, asked: str, still_open: list[str]) -> None:
        what = "is closed to new starts" if "@" in asked else "has no version that is open to new starts"
        hint = f" Open: {', '.join(still_open)}." if still_open else " An operator can open one."
        super().__init__(f"{asked} {what}. Nothing was started.{hint}", open=still_open)


class StartsStopped(VersionClosed):
    """An operator has stopped new starts of the agent."""

    status, code, title = 409, "starts-stopped", "New starts of the agent are stopped"

    def __init__(self, agent: str, halt: Mapping[str, Any]) -> None:
        DurableAgentsError.__init__(
            self,
            f"New starts of {agent} are stopped by {halt['by']} since "
            f"{halt['since'][:16].replace('T', ' ')} UTC: {halt['why'].rstrip('.')}. Nothing was started.",
            open=[],
        )


class Key(NamedTuple):
    """What keeps a start on its side: whose, and the text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What counts for an agent's starts while this transaction lasts."""

    closed: frozenset[str]
    ramp: Mapping[str, Any] | None
    is_served: bool
    halts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, name: str) -> Rules:
        """Return them as they are now; nobody changes them before the caller's transaction ends. Raises ChangedOutside
        where a version was closed or opened outside the application."""
        with connection.cursor() as cursor:
            cursor.execute(_RELEASE, [name, FRESH_SECONDS, name])
            row, gates = cursor.fetchone()
        if changed := wrong_in(gates):
            raise ChangedOutside(*changed)
        told = _read(row)
        halts = tuple(told.get("halts", ()))
        return cls(frozenset(told["closed"]), told.get("ramp"), bool(told.get("is_served")), halts)

    def refuse(self, name: str) -> None:
        """Raises StartsStopped where new starts are refused."""
        for halt in self.halts:
            if halt["kind"] == "starts" and halt["refuses"]:
                raise StartsStopped(name, halt)

    def halted(self, graph_id: str, tags: Iterable[str]) -> Mapping[str, Any] | None:
        """The oldest halt that a new run of a version comes under, as it is told to whoever starts it."""
        known = set(tags)
        for halt in self.halts:
            is_under = halt["scope"] in ("all", "agent") or halt["key"] == graph_id
            if is_under or (halt["scope"] == "tag" and halt["key"] in known):
                return {name: halt[name] for name in ("kind", "scope", "key", "by", "why", "since")}
        return None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The version that a start gets. `told` is what its journal says of that, where a ramp decided."""

    agent: Agent
    told: e.VersionAssigned | None = None
    halted: Mapping[str, Any] | None = None  # the halt that its run comes under

    @property
    def events(self) -> list[e.VersionAssigned]:
        return [] if self.told is None else [self.told]

    def store(self, run: Run) -> None:
        """Beside the run's first events, in their transaction: what the ramp's figures are counted by."""
        if (told := self.told) is not None:
            RampStart.objects.create(
                run_id=run.pk, ramp_id=told.ramp, is_new=told.is_new, why=told.why, place=told.place, at=run.created_at
            )


def choose(reference: str, *, tags: Iterable[str] | Mapping[str, str], key: Key) -> Chosen:
    """Raises UnknownAgent, UnknownVersion, VersionClosed, StartsStopped, ChangedOutside."""
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
    """The side of a ramp that a start comes out on. Raises UnknownVersion where this process lacks that side."""
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
    """An open version, newer than any that this process has, that living workers begin runs of: whoever starts by name
    and may as well be another process leaves it to one that has it. Empty: there is none."""
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
    """Where a key stands among 10,000: the same for ever, and for another ramp elsewhere."""
    named = hashlib.sha256(f"ramp\n{ramp_id}\n{key.text}".encode()).digest()
    return int.from_bytes(named[:8], "big") % PLACES


def _named(tags: Iterable[str] | Mapping[str, str]) -> list[str]:
    return [f"{name}:{value}" for name, value in tags.items()] if isinstance(tags, Mapping) else list(tags)


def _read(told: Any) -> dict[str, Any]:
    return dict(json.loads(told) if isinstance(told, str) else told)
