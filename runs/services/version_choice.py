"""The version of a new run: the named one, or the newest that accepts new runs.
A feature may choose a different one."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from ledger import events as e
from ledger.errors import DurableAgentsError
from runs import features
from runs.engine.agents import Agent, registry
from runs.fleet.members import FRESH_SECONDS
from runs.models import Run


class VersionClosed(DurableAgentsError):
    """The version is closed to new starts."""

    status, code, title = 409, "version-closed", "Closed to new starts"

    def __init__(self, reference: str, still_open: list[str]) -> None:
        what = "is closed to new starts" if "@" in reference else "has no version that is open to new starts"
        hint = f" Open: {', '.join(still_open)}." if still_open else " An operator can open one."
        super().__init__(f"{reference} {what}. Nothing was started.{hint}", open=still_open)


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


class StartsUnderWay(DurableAgentsError):
    """Starts of the agent were still in progress when the time limit passed."""

    status, code, title = 503, "starts-under-way", "Starts are still in progress"

    def __init__(self, agent: str) -> None:
        super().__init__(f"Starts of {agent} were still in progress after a second. Nothing was done. Try again.")


class Key(NamedTuple):
    """The identity by which related starts get the same version: its kind and its text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The version for a start.
    `event` is recorded if a feature assigned it; `halted` is the halt that covers the run."""

    agent: Agent
    event: e.VersionAssigned | None
    halted: Mapping[str, Any] | None

    @property
    def events(self) -> list[e.VersionAssigned]:
        return [] if self.event is None else [self.event]

    def store(self, run: Run) -> None:
        """Store a feature's assignment with the new run."""
        if self.event is not None and (rules := _find_rules()) is not None:
            rules.store(run, self.event)


def _find_rules() -> features.StartRules | None:
    return features.only(lambda each: each.start_rules)


def choose(reference: str, *, tags: Iterable[str] | Mapping[str, str], key: Key) -> Chosen:
    """Return the version of a start.
    The data on which it depends stays locked until the transaction ends. Raises UnknownAgent, UnknownVersion,
    VersionClosed, StartsStopped, ChangedOutside."""
    named = registry.find(reference)
    rules = _find_rules()
    with connection.cursor() as cursor:
        parameters = {"agent": named.name}
        cursor.execute(f"SELECT runs_lock_start(%(agent)s), {rules.statement if rules else 'NULL'}", parameters)
        row, value = cursor.fetchone()
    found: dict[str, Any] = json.loads(row)
    for halt in found["halts"]:
        if halt["kind"] == "starts" and halt["refuses"]:
            raise StartsStopped(named.name, halt)
    closed = {*found["quarantined"], *(rules.closed_in(value) if rules else ())}
    words = [f"{tag}:{text}" for tag, text in tags.items()] if isinstance(tags, Mapping) else list(tags)
    event = rules.assign(value, words, key) if rules and "@" not in reference else None
    if event is None:
        agent = _open_version(reference, named, closed)
    else:
        agent = registry.find(f"{named.name}@{event.to_version if event.is_new else event.from_version}")
    return Chosen(agent, event, _halt_of(found["halts"], agent.graph_id, {*tags, *words}))


def _open_version(reference: str, named: Agent, closed: Collection[str]) -> Agent:
    """Return the named version, or the newest one that is open. Raises VersionClosed."""
    still_open = [agent for agent in registry.versions(named.name) if agent.version not in closed]
    if "@" not in reference:
        if not still_open:
            raise VersionClosed(reference, [])
        return still_open[0]
    if named.version in closed:
        raise VersionClosed(reference, [agent.version for agent in still_open])
    return named


def _halt_of(halts: Iterable[Mapping[str, Any]], graph_id: str, tags: Collection[str]) -> Mapping[str, Any] | None:
    """Return the oldest halt that covers a new run of a version, with the fields that its starter may see."""
    for halt in halts:
        is_under = halt["scope"] in ("all", "agent") or halt["key"] == graph_id
        if is_under or (halt["scope"] == "tag" and halt["key"] in tags):
            return {name: halt[name] for name in ("kind", "scope", "key", "by", "why", "since")}
    return None


def lock_out_starts(agent: str) -> None:
    """Lock out starts of the agent until this transaction ends. Raises StartsUnderWay."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT runs_release_alone(%s)", [agent])
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise StartsUnderWay(agent) from error
        raise


_SERVED = """
    SELECT DISTINCT split_part(s.graph_id, '@', 2) FROM runs_served s JOIN runs_process p ON p.id = s.worker
    WHERE split_part(s.graph_id, '@', 1) = %(agent)s AND NOT s.is_quarantined AND NOT s.is_draining
      AND p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => %(fresh)s)"""


def elsewhere(reference: str) -> str:
    """Return a newer open version that other workers serve and this process lacks; "" if there is none."""
    if "@" in reference:
        return ""
    rules = _find_rules()
    is_open = f" AND split_part(s.graph_id, '@', 2) NOT IN ({rules.closed})" if rules else ""
    newest = registry.versions(reference)[0]
    with connection.cursor() as cursor:
        cursor.execute(_SERVED + is_open, {"agent": reference, "fresh": FRESH_SECONDS})
        newer = [version for (version,) in cursor.fetchall() if ordered(version) > ordered(newest.version)]
    return f"{reference}@{max(newer, key=ordered)}" if newer else ""


def ordered(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
