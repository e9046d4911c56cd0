"""An agent's versions and ramps, and estimates of when a version's last run ends.
Kaplan-Meier over the newest runs, ended or not: ended ones alone would make the estimate too short."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from ledger.web.seeing.viewers import viewer
from runs.fleet.members import FRESH_SECONDS
from runs.models import ENDED, Ramp, State, VersionGate
from runs.services.releases.watching import Figures, figures_of

SAMPLE = 500  # newest runs per state
FEWEST = 10  # ended runs needed
USUALLY, NEARLY_ALL = 0.5, 0.95
LIVING = [str(state) for state in State if state not in ENDED]
# Durations of the newest runs so far; none for one that may not begin yet.
_LASTED = """
    SELECT v.version, f.ended, greatest(extract(epoch FROM f.lasted), 0)
    FROM unnest(%(versions)s::text[]) AS v(version) CROSS JOIN unnest(%(states)s::text[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT r.ended_at IS NOT NULL AS ended,
               coalesce(r.ended_at, clock_timestamp())
               - greatest(r.created_at, coalesce(r.start_at, r.created_at)) AS lasted
        FROM runs_run r WHERE r.state = s.state AND r.agent = %(agent)s AND r.version = v.version
        ORDER BY r.created_at DESC, r.id DESC LIMIT %(most)s) f"""
# The newest and oldest active run by start, and the latest time at which something happens to each.
_ALIVE = """
    SELECT v.version, min(f.began), max(f.began), max(f.time_up_at), bool_or(f.time_up_at IS NULL),
           count(*) FILTER (WHERE f.state = 'paused'), count(*) FILTER (WHERE f.state = 'waiting_human'),
           max(f.deadline) FILTER (WHERE f.state = 'waiting_human'), clock_timestamp()
    FROM unnest(%(versions)s::text[]) AS v(version) CROSS JOIN unnest(%(states)s::text[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT r.state, greatest(r.created_at, coalesce(r.start_at, r.created_at)) AS began, r.time_up_at,
               (SELECT max(w.deadline) FROM runs_wait w WHERE w.run_id = r.id AND w.resolved_at IS NULL) AS deadline
        FROM runs_run r WHERE r.state = s.state AND r.agent = %(agent)s AND r.version = v.version
        ORDER BY r.created_at DESC, r.id DESC LIMIT %(most)s) f
    GROUP BY v.version"""
MOST_ALIVE = 10_000


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of the last active run's end:
    `earliest` as runs usually take, `latest` as nearly all do, or a reason `why` not. `people`: runs that wait for
    people or are paused, with their last deadline `people_until`; `time_up_at`: the last time limit."""

    earliest: datetime | None = None
    latest: datetime | None = None
    why: str = ""
    people: int = 0
    people_until: datetime | None = None
    time_up_at: datetime | None = None


def forecasts(agent: str, versions: Sequence[str], *, is_counted: Mapping[str, bool]) -> dict[str, Forecast]:
    """Return the forecasts of versions with active runs, in two statements."""
    if not versions:
        return {}
    asked: dict[str, Any] = {"agent": agent, "versions": list(versions)}
    with connection.cursor() as cursor:
        cursor.execute(_LASTED, asked | {"states": list(map(str, State)), "most": SAMPLE})
        lasted: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
        for version, ended, seconds in cursor.fetchall():
            lasted[version].append((float(seconds), ended))
        cursor.execute(_ALIVE, asked | {"states": LIVING, "most": MOST_ALIVE})
        alive = {row[0]: row[1:] for row in cursor.fetchall()}
    return {
        version: _forecast(lasted[version], *alive[version], is_counted=is_counted.get(version, True))
        for version in versions
        if version in alive
    }


def _forecast(
    lasted: Sequence[tuple[float, bool]],
    oldest: datetime,
    newest: datetime,
    time_up_at: datetime | None,
    has_endless: bool,
    paused: int,
    asking: int,
    people_until: datetime | None,
    now: datetime,
    *,
    is_counted: bool,
) -> Forecast:
    usual, nearly = within(lasted, USUALLY), within(lasted, NEARLY_ALL)
    earliest = None if usual is None else max(now, newest + timedelta(seconds=usual))
    latest = None if nearly is None else max(now, newest + timedelta(seconds=nearly))
    why = ""
    if not is_counted:
        why = f"more than {MOST_ALIVE} are active"
    elif sum(ended for _, ended in lasted) < FEWEST:
        why = f"fewer than {FEWEST} of its runs have ended"
    elif paused or asking:
        why = _of_people(paused, asking)
    elif nearly is None or latest is None:
        why = "too many recent runs are still active"
    elif (now - oldest).total_seconds() > nearly:
        why = "some are unusually slow"
    if why:
        latest = None
        earliest = earliest if is_counted and sum(ended for _, ended in lasted) >= FEWEST else None
    return Forecast(
        earliest, latest, why, paused + asking, people_until, None if has_endless or not is_counted else time_up_at
    )


def _of_people(paused: int, asking: int) -> str:
    told = [f"{asking} wait{'s' if asking == 1 else ''} for people"] if asking else []
    told += [f"{paused} {'is' if paused == 1 else 'are'} paused"] if paused else []
    return " and ".join(told)


def within(lasted: Iterable[tuple[float, bool]], share: float) -> float | None:
    """Return the seconds after which this share of runs has ended (False: not yet); None if unknown."""
    left, survive = sorted(lasted, key=lambda one: (one[0], not one[1])), 1.0
    for i, (seconds, ended) in enumerate(left):
        if ended:
            survive *= 1 - 1 / (len(left) - i)
            if survive <= 1 - share + 1e-9:
                return seconds
    return None


COUNTED_TO = 10_000
SHOWN = 500
# Every known version, newest first, with its workers, gate, and runs: one bounded index lookup per version and state.
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
    """A version. `counts`: runs by state, each up to `COUNTED_TO` + 1; `beginning`: workers that begin its runs."""

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
    """A ramp with its figures, unless it is over, and starts by side; None for viewers who don't see all runs."""

    ramp: Ramp
    figures: Figures | None = field(default_factory=Figures)
    to_new: int | None = 0
    to_old: int | None = 0


def versions_of(agent: str, here: list[str], *, only: str = "") -> list[Standing]:
    """Return an agent's versions, newest first, or one, in three statements; `here` are this process's versions.
    Runs are counted in the viewer's access scope; the forecast, which uses all runs, needs full access."""
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
    return ramped_all([ramp])[0]


def ramped_all(ramps: Sequence[Ramp]) -> list[Ramped]:
    """Return the status of ramps, in two statements."""
    if not viewer().sees_all:
        return [Ramped(one, None, None, None) for one in ramps]
    with connection.cursor() as cursor:
        cursor.execute(_SIDES, {"ramps": [one.pk for one in ramps], "most": COUNTED_TO + 1})
        sides = {ramp: (to_new, to_old) for ramp, to_new, to_old in cursor.fetchall()}
    under_way = [one for one in ramps if one.ended_at is None]
    told = figures_of(under_way) if under_way else {}
    return [Ramped(one, told.get(one.pk, Figures()), *sides[one.pk]) for one in ramps]


def ramps(agent: str = "", *, limit: int, beyond: int | None = None) -> list[Ramp]:
    """Return ramps, newest first, after a place."""
    rows = Ramp.objects.order_by("-id")
    rows = rows.filter(agent=agent) if agent else rows
    return list((rows if beyond is None else rows.filter(pk__lt=beyond))[:limit])
