"""Agent versions: fingerprints, quarantine, and which workers serve each version.
The fingerprint is stored at a version's first use. A process with different code quarantines the version in production,
and warns in development. A fingerprint of an older scheme is compared according to that scheme, and replaced if the
code is the same, so that an upgrade quarantines nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection
from psycopg.rows import TupleRow

from ledger.codec import read_clear
from ledger.errors import DurableAgentsError
from ledger.events import KEY_MISSING
from ledger.models import Head
from ledger.protocol import PROTOCOL
from runs import features, log_messages
from runs.engine.agents import Agent, registry
from runs.engine.checkpoints.upgrading import number_by
from runs.engine.fingerprint import is_current
from runs.engine.migration import number_in
from runs.fleet.members import FRESH_SECONDS
from runs.fleet.version_changes import Change, change_of
from runs.models import AgentCode, AgentVersion

log = logging.getLogger("runs.fleet.agent_versions")

_FIRST_USE = """
    INSERT INTO runs_agentversion (graph_id, fingerprint, parts, first_used_at)
    VALUES (%s, %s, %s::jsonb, clock_timestamp())
    ON CONFLICT (graph_id) DO NOTHING"""
_SEEN = """
    INSERT INTO runs_agentcode (graph_id, fingerprint, parts, first_seen_at)
    VALUES (%s, %s, %s::jsonb, clock_timestamp())
    ON CONFLICT (graph_id, fingerprint) DO NOTHING"""
_STORED = "SELECT fingerprint, parts FROM runs_agentversion WHERE graph_id = %s"
# Only the first process replaces the fingerprint. For the others, no row is updated, and they compare with the new
# fingerprint.
_ADOPT = "UPDATE runs_agentversion SET fingerprint = %s, parts = %s::jsonb WHERE graph_id = %s AND fingerprint = %s"
_SERVE = """
    INSERT INTO runs_served (worker, graph_id, is_quarantined, is_draining) VALUES (%s, %s, %s, %s)
    ON CONFLICT (worker, graph_id) DO UPDATE
    SET is_quarantined = excluded.is_quarantined, is_draining = excluded.is_draining"""
_SERVED = """
    SELECT s.graph_id, bool_and(s.is_quarantined) FROM runs_served s JOIN runs_process p ON p.id = s.worker
    WHERE p.ended_at IS NULL AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => %s)
    GROUP BY s.graph_id"""
# One index lookup per version with ready runs, however many such runs there are.
_READY = """
    WITH RECURSIVE ready AS (
        (SELECT graph_id FROM runs_run WHERE ready_at IS NOT NULL ORDER BY graph_id LIMIT 1)
        UNION ALL
        SELECT (SELECT r.graph_id FROM runs_run r WHERE r.ready_at IS NOT NULL AND r.graph_id > ready.graph_id
                ORDER BY r.graph_id LIMIT 1)
        FROM ready WHERE ready.graph_id IS NOT NULL)
    SELECT graph_id FROM ready WHERE graph_id IS NOT NULL"""


DRAINED = "drained:"  # prefix of a version in runs_drivable: runs/sql/claims.sql
BEHIND = "behind:"
ONLY_DRAINED = "every running worker with {} drains it and starts no runs"


class VersionChanged(DurableAgentsError):
    """This process's code differs from the code with which the version was first used."""

    status, code, title = 409, "version-changed", "The agent's code has changed under its version"

    def __init__(self, change: Change) -> None:
        super().__init__(
            f"{change.graph_id} was first used with different code: {change.told}.",
            errors=[
                {"field": "agent", "problem": each, "fix": f"give the changed code the version {change.proposed}"}
                for each in change.said
            ],
        )


class Loaded:
    """The versions that one worker drives: all, or `only` the named ones (`name` or `name@version`)."""

    def __init__(self, worker: UUID, *, only: Collection[str] = (), is_draining: bool = False) -> None:
        self._worker, self._only, self._is_draining = worker, frozenset(only), is_draining
        self._known: set[str] = set()

    def graph_ids(self) -> list[str]:
        return [graph_id for graph_id in registry.graph_ids() if self._drives(graph_id)]

    def _drives(self, graph_id: str) -> bool:
        return not self._only or graph_id in self._only or graph_id.partition("@")[0] in self._only

    async def announce(self, link: psycopg.AsyncConnection[TupleRow]) -> None:
        """Check new versions, quarantine those that differ, and record that this worker has the others."""
        for agent in registry.agents():
            if agent.graph_id in self._known or not self._drives(agent.graph_id):
                continue
            made_of = _made_of(agent)
            await link.execute(_SEEN, made_of)
            await link.execute(_FIRST_USE, made_of)
            stored = await (await link.execute(_STORED, [agent.graph_id])).fetchone()
            if stored is not None and _is_older(agent, stored[0]):
                if (await link.execute(_ADOPT, _adopted(agent, stored[0]))).rowcount:
                    log.warning(log_messages.VERSION_ADOPTED, agent.graph_id)
                stored = await (await link.execute(_STORED, [agent.graph_id])).fetchone()
            is_quarantined = stored is not None and stored[0] != agent.fingerprint() and _quarantine(agent, *stored)
            await link.execute(_SERVE, [self._worker, agent.graph_id, is_quarantined, self._is_draining])
            self._known.add(agent.graph_id)


def _quarantine(agent: Agent, fingerprint: str, parts: Any) -> bool:
    """Quarantine changed code in production, otherwise warn. Returns whether it is quarantined."""
    change = change_of(agent, fingerprint, parts)
    if not settings.DURABLEAGENTS.is_production:
        log.warning(log_messages.VERSION_CHANGED, change, "in production its runs would not be executed")
        return False
    log.error(log_messages.VERSION_CHANGED, change, "none of its runs is executed or started here")
    registry.quarantine(agent.graph_id)
    return True


def _made_of(agent: Agent) -> list[str]:
    return [agent.graph_id, agent.fingerprint(), json.dumps(agent.parts())]


def _is_older(agent: Agent, stored: str) -> bool:
    """Return whether the stored fingerprint belongs to the same code under an older scheme."""
    return not is_current(stored) and agent.is_own(stored)


def _adopted(agent: Agent, stored: str) -> list[str]:
    graph_id, fingerprint, parts = _made_of(agent)
    return [fingerprint, parts, graph_id, stored]


def note_use(agent: Agent) -> None:
    """Store or check the version's fingerprint at a run's start. Raises VersionChanged in production."""
    with connection.cursor() as cursor:
        cursor.execute(_STORED, [agent.graph_id])
        stored = cursor.fetchone()
        if stored is None:
            cursor.execute(_FIRST_USE, _made_of(agent))
            cursor.execute(_STORED, [agent.graph_id])
            stored = cursor.fetchone()
        elif _is_older(agent, stored[0]):
            cursor.execute(_ADOPT, _adopted(agent, stored[0]))
            if cursor.rowcount:
                log.warning(log_messages.VERSION_ADOPTED, agent.graph_id)
            cursor.execute(_STORED, [agent.graph_id])
            stored = cursor.fetchone()
    if stored is not None and stored[0] != agent.fingerprint() and settings.DURABLEAGENTS.is_production:
        raise VersionChanged(change_of(agent, *stored))


def served() -> dict[str, bool]:
    with connection.cursor() as cursor:
        cursor.execute(_SERVED, [FRESH_SECONDS])
        return dict(cursor.fetchall())


def drivable() -> frozenset[str]:
    """Return the versions that living workers drive.
    Versions that are only drained are included with the DRAINED prefix."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT runs_drivable(%s)", [FRESH_SECONDS])
        return frozenset(cursor.fetchone()[0])


def is_only_drained(run: Any, drivable_now: frozenset[str]) -> bool:
    """Return whether the run has not started and all workers with its version only drain it."""
    is_to_begin = run.state == "pending" and run.came_from is None and run.parent is None
    return is_to_begin and f"{DRAINED}{run.graph_id}" in drivable_now


def unserved() -> list[str]:
    """Return the versions of ready runs that no living worker drives."""
    with connection.cursor() as cursor:
        cursor.execute(_READY)
        ready = [row[0] for row in cursor.fetchall()]
    return sorted(set(ready) - drivable()) if ready else []


def why_not_driven(run: Any, drivable_now: frozenset[str]) -> str | None:
    """Return a sentence on why no worker drives a ready run, or None."""
    if run.ready_at is None or run.owner is not None or run.ready_at > datetime.now(UTC):  # the run may not begin yet
        return None
    if run.protocol == PROTOCOL and f"{BEHIND}{run.graph_id}" in drivable_now:
        return f"only workers of the previous release have {run.graph_id}, but the run was started by this release"
    if run.graph_id in drivable_now:
        return ONLY_DRAINED.format(run.graph_id) if is_only_drained(run, drivable_now) else None
    return f"no running worker has {run.graph_id}" if drivable_now else "no worker is running"


def missing_key_of(run: Any, head: Head | None) -> str | None:
    """Return a sentence on why a ready run waits for a worker that has its key, or None.
    `head` is from `families`."""
    released = getattr(head, "released", None)
    if run.ready_at is None or run.owner is not None or released is None:
        return None
    try:
        reason = str(read_clear(released).get("reason"))
    except ValueError:
        return None  # a damaged event, which the page of the journal reports
    return (
        f"the last worker lacks its key: {reason.removeprefix(KEY_MISSING)}" if reason.startswith(KEY_MISSING) else None
    )


def is_left_alone(run: Any, drivable_now: frozenset[str]) -> bool:
    """Return whether no worker could drive a parked run if it became ready now.
    In that case, nothing is lost by leaving it parked until there is such a worker."""
    is_parked = run.ended_at is None and run.ready_at is None and run.owner is None
    return is_parked and run.graph_id not in drivable_now


class Watch:
    """Logs each missing version once, and forgets the versions of dead workers."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def check(self) -> None:
        now = set(unserved())
        for graph_id in sorted(now - self._reported):
            log.warning(log_messages.VERSION_UNSERVED, graph_id)
        for graph_id in sorted(self._reported - now):
            log.info(log_messages.VERSION_SERVED, graph_id)
        self._reported = now
        for hear in features.parts_of_all(lambda each: each.on_versions_missing) if now else ():
            hear(sorted(now))


def forget_the_dead() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM runs_served s "
            "WHERE NOT EXISTS (SELECT 1 FROM runs_process p WHERE p.id = s.worker AND p.ended_at IS NULL)"
        )


def state_format(graph_id: str, fingerprint: str) -> int:
    """Return the state format of the code with this fingerprint, or else that of the version.
    0 if unknown."""
    name, _, version = graph_id.partition("@")
    here = [a for a in registry.versions(name) if (a.is_own(fingerprint) if fingerprint else a.version == version)]
    if here:
        return here[0].schema_version
    if not fingerprint:
        parts = AgentVersion.objects.filter(graph_id=graph_id).values_list("parts", flat=True).first()
        return number_in(parts or {})
    wrote = {"graph_id__startswith": f"{name}@", "fingerprint": fingerprint}
    parts = AgentCode.objects.filter(**wrote).values_list("parts", flat=True).first()
    return number_by(fingerprint, parts or AgentVersion.objects.filter(**wrote).values_list("parts", flat=True).first())
