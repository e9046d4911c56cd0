"""Chooses the version for a run that is started by its agent's name.

A start key's place in a ramp never changes, so raising the ramp's share moves keys only to the newer version."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping
from typing import Any

from psycopg import AsyncConnection

from durableagents.contrib.releases.models import Ramp, RampStart, gate_proofs
from ledger import events as e
from ledger.protected import ChangedOutside, is_authentic, wrong_in
from runs.engine.agents import registry
from runs.fleet.members import FRESH_SECONDS
from runs.models import Run
from runs.services.version_choice import Key

PLACES = 10_000
# The rules, with the proofs of the agent's gates, including gates deleted outside the application.
RULES = f"ARRAY[releases_rules(%(agent)s, {FRESH_SECONDS})::text, {gate_proofs('t.agent = %(agent)s')}]"
CLOSED = "SELECT g.version FROM runs_versiongate g WHERE g.agent = %(agent)s AND g.is_closed"


def closed_in(value: Any) -> Collection[str]:
    """Return the closed versions. Raises ChangedOutside if a version was closed or opened outside the application."""
    rules, proofs = value
    if changed := wrong_in(proofs):
        raise ChangedOutside(*changed)
    closed: list[str] = json.loads(rules)["closed"]
    return closed


def assign(value: Any, tags: Collection[str], key: Key) -> e.VersionAssigned | None:
    """Assign a start to the older or newer version of the agent's ramp; return None if there is no ramp."""
    rules: Mapping[str, Any] = json.loads(value[0])
    ramp: Mapping[str, Any] | None = rules.get("ramp")
    if ramp is None:
        return None
    place, tag = place_of(ramp["id"], key), next((tag for tag in tags if tag in ramp["tags"]), "")
    is_new, why = bool(tag) or place < ramp["share"], "tag" if tag else "share"
    if ramp["state"] != Ramp.State.ON:
        is_new, why = False, "halted"
    elif is_new and f"{ramp['agent']}@{ramp['to_version']}" not in registry.graph_ids():
        is_new, why = False, "unknown"
    elif is_new and not rules["is_served"]:
        is_new, why = False, "unserved"
    return e.VersionAssigned(
        ramp=ramp["id"],
        from_version=ramp["from_version"],
        to_version=ramp["to_version"],
        is_new=is_new,
        why=why,
        share=ramp["share"],
        place=place,
        key=key.kind,
        tag=tag,
    )


def place_of(ramp_id: int, key: Key) -> int:
    """Return a key's place, from 0 to 9,999. It is stable within a ramp and differs between ramps."""
    digest = hashlib.sha256(f"ramp\n{ramp_id}\n{key.text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % PLACES


def store(run: Run, assigned: e.VersionAssigned) -> None:
    """Store the assignment in the start's transaction. The ramp's figures are computed from these rows."""
    RampStart.objects.create(
        run_id=run.pk,
        ramp_id=assigned.ramp,
        is_new=assigned.is_new,
        why=assigned.why,
        place=assigned.place,
        at=run.created_at,
    )


REFRESH_SECONDS = 2.0
_CURRENT = f"""
    SELECT ARRAY(SELECT agent || '@' || version FROM runs_versiongate WHERE is_closed),
           (SELECT coalesce(jsonb_object_agg(agent, from_version), '{{}}') FROM runs_ramp WHERE ended_at IS NULL),
           {gate_proofs()}"""


class RegistryRefresh:
    """Updates this process's registry with the versions that child runs get.

    Child runs stay on the older side of a ramp, because a ramp assigns and evaluates only runs that are started from
    outside."""

    def __init__(self) -> None:
        self._read_at = float("-inf")

    async def __call__(self, connection: AsyncConnection[Any]) -> None:
        """Read closed versions and ramps, unless that was done within the last REFRESH_SECONDS."""
        if time.monotonic() - self._read_at < REFRESH_SECONDS:
            return
        row = await (await connection.execute(_CURRENT)).fetchone()
        assert row is not None
        if is_authentic(row[2]):  # if not authentic, the values of the last authentic read stay in use
            registry.steer(closed=row[0], kept=row[1])
        self._read_at = time.monotonic()
