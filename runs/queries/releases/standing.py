"""An agent's versions: what each has under way, who serves it, and whether starts get it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import connection

from ledger.web.seeing.viewers import viewer
from runs.fleet.members import FRESH_SECONDS
from runs.models import ENDED, Ramp, State, VersionGate
from runs.queries.releases.forecast import Forecast, forecasts
from runs.services.releases.watching import Figures, figures_of

COUNTED_TO = 10_000
SHOWN = 500
LIVING = [str(state) for state in State if state not in ENDED]
# Every version that anything is known of, the newest first, with who serves it, what was said of its starts, and its
# runs: one short look into the index of each version and state, which ends where nobody would count on.
_VERSIONS = """
    SELECT v.version, v.is_known, coalesce(s.beginning, 0), coalesce(s.workers, 0),
           g.id, g.is_closed, g.set_by, g.set_at, g.why,
           (SELECT jsonb_object_agg(a.state, (
               SELECT count(*) FROM (SELECT 1 FROM runs_run r WHERE r.state = a.state AND r.agent = %(agent)s
                                     AND r.version = v.version AND (%(sees_all)s OR r.creator = %(person)s OR EXISTS (
                                         SELECT 1 FROM runs_runtag t WHERE t.run_id = r.id AND t.tag = ANY(%(tags)s)))
                                     LIMIT %(counted)s) few))
            FROM unnest(%(states)s::text[]) AS a(state))
    FROM (
        SELECT version, bool_or(is_known) AS is_known FROM (
            SELECT unnest(%(here)s::text[]) AS version, true AS is_known
            UNION ALL SELECT split_part(graph_id, '@', 2), true FROM runs_agentversion
            WHERE split_part(graph_id, '@', 1) = %(agent)s
            UNION ALL SELECT version, false FROM runs_versiongate WHERE agent = %(agent)s
        ) every GROUP BY version) v
    LEFT JOIN runs_versiongate g ON g.agent = %(agent)s AND g.version = v.version
    LEFT JOIN (
        SELECT split_part(s.graph_id, '@', 2) AS version, count(*) FILTER (WHERE NOT s.is_draining) AS beginning,
               count(*) AS workers
        FROM runs_served s JOIN runs_process p ON p.id = s.worker
        WHERE split_part(s.graph_id, '@', 1) = %(agent)s AND NOT s.is_quarantined AND p.ended_at IS NULL
          AND p.last_heartbeat_at > clock_timestamp() - make_interval(secs => %(fresh)s)
        GROUP BY 1) s ON s.version = v.version
    WHERE v.version ~ '^[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}$' AND %(only)s IN ('', v.version)
    ORDER BY string_to_array(v.version, '.')::int[] DESC LIMIT %(most)s"""


@dataclass(frozen=True, slots=True)
class Standing:
    """A version. `counts` are its runs by state, each up to `COUNTED_TO` + 1; `workers` the living ones that drive it,
    `beginning` those of them that begin runs. `gate` is what people said of its starts last."""

    agent: str
    version: str
    is_known: bool
    counts: dict[str, int]
    workers: int
    beginning: int
    gate: VersionGate | None
    forecast: Forecast

    @property
    def graph_id(self) -> str:
        return f"{self.agent}@{self.version}"

    @property
    def is_closed(self) -> bool:
        return self.gate is not None and self.gate.is_closed

    @property
    def living(self) -> int:
        return sum(self.counts.get(state, 0) for state in LIVING)

    @property
    def is_served(self) -> bool:
        return self.workers > 0

    @property
    def is_only_drained(self) -> bool:
        return self.workers > 0 == self.beginning

    def total(self, *states: str) -> int:
        return sum(self.counts.get(state, 0) for state in states)


@dataclass(frozen=True, slots=True)
class Ramped:
    """A ramp with what counts towards its bounds now, where it isn't over, and how many starts went which way. None:
    who looks doesn't see all the runs that are counted."""

    ramp: Ramp
    figures: Figures | None = field(default_factory=Figures)
    to_new: int | None = 0
    to_old: int | None = 0


def versions_of(agent: str, here: list[str], *, only: str = "") -> list[Standing]:
    """The versions of an agent, newest first, or that one, in three statements; `here` are those that this process
    has. Of runs those are counted that whoever looks sees; who doesn't see all is told no forecast, which is made of
    how long all of them take."""
    who = viewer()
    asked: dict[str, Any] = {
        "agent": agent,
        "here": here,
        "most": SHOWN,
        "states": list(map(str, State)),
        "counted": COUNTED_TO + 1,
        "fresh": FRESH_SECONDS,
        "only": only,
        "sees_all": who.sees_all,
        "person": who.person,
        "tags": sorted(who.tags),
    }
    with connection.cursor() as cursor:
        cursor.execute(_VERSIONS, asked)
        found = [_standing(agent, *row) for row in cursor.fetchall()]
    told = (
        {}
        if not who.sees_all
        else forecasts(
            agent,
            [one.version for one in found if one.living],
            is_counted={one.version: one.living <= COUNTED_TO for one in found},
        )
    )
    return [replace(one, forecast=told.get(one.version, Forecast())) for one in found]


def _standing(
    agent: str,
    version: str,
    is_known: bool,
    beginning: int,
    workers: int,
    gate_id: int | None,
    is_closed: bool,
    set_by: str,
    set_at: datetime,
    why: str,
    counts: str,
) -> Standing:
    said: dict[str, Any] = {"id": gate_id, "is_closed": is_closed, "set_by": set_by, "set_at": set_at, "why": why}
    gate = None if gate_id is None else VersionGate(agent=agent, version=version, **said)
    return Standing(agent, version, is_known, json.loads(counts), workers, beginning, gate, Forecast())


_SIDES = """
    SELECT ramp, (SELECT count(*) FROM (SELECT 1 FROM runs_rampstart WHERE ramp_id = ramp AND is_new LIMIT %(most)s) n),
           (SELECT count(*) FROM (SELECT 1 FROM runs_rampstart WHERE ramp_id = ramp AND NOT is_new LIMIT %(most)s) o)
    FROM unnest(%(ramps)s::bigint[]) AS asked(ramp)"""


def ramped(ramp: Ramp) -> Ramped:
    """How a ramp stands."""
    return ramped_all([ramp])[0]


def ramped_all(ramps: Sequence[Ramp]) -> list[Ramped]:
    """How ramps stand, in two statements."""
    if not viewer().sees_all:
        return [Ramped(one, None, None, None) for one in ramps]
    with connection.cursor() as cursor:
        cursor.execute(_SIDES, {"ramps": [one.pk for one in ramps], "most": COUNTED_TO + 1})
        sides = {ramp: (to_new, to_old) for ramp, to_new, to_old in cursor.fetchall()}
    under_way = [one for one in ramps if one.ended_at is None]
    told = figures_of(under_way) if under_way else {}
    return [Ramped(one, told.get(one.pk, Figures()), *sides[one.pk]) for one in ramps]


def ramps(agent: str = "", *, limit: int, beyond: int | None = None) -> list[Ramp]:
    """Ramps, newest first: of an agent, or all; that come after a place in that order."""
    rows = Ramp.objects.order_by("-id")
    rows = rows.filter(agent=agent) if agent else rows
    return list((rows if beyond is None else rows.filter(pk__lt=beyond))[:limit])


def last_change(agent: str) -> datetime | None:
    """When people last said anything of the agent's starts."""
    gate = VersionGate.objects.filter(agent=agent).order_by("-set_at").first()
    return None if gate is None else gate.set_at
