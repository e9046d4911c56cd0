"""An agent's versions and ramps for the API and console, with figures, and forecasts of when a version's last run ends.

Forecasts are Kaplan-Meier estimates over the newest runs, whether they have ended or not. Ended runs alone would make
the estimates too short."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db import connection
from pydantic import Field

from durableagents.contrib.releases.models import Ramp
from ledger.web.fields import ActorName, AgentName, AgentVersion
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from runs.engine.agents import registry
from runs.fleet.members import FRESH_SECONDS
from runs.models import ENDED, State
from runs.queries.run_list import GROUPS

# --- forecasts --------------------------------------------------------------------------------------------------------


class ForecastRow(Shape):
    """A forecast of when the last active run of a version may end."""

    earliest: datetime | None = Field(description="Based on the usual duration of such runs.")
    latest: datetime | None = Field(
        description="Based on the duration of nearly all such runs; null: unknown, for the reason in `why`."
    )
    why: str = Field(description="Why the latest time is unknown; empty if it is known.")
    people: int = Field(description="Runs that wait for a person or are paused.")
    people_until: datetime | None = Field(description="Latest deadline of their waits.")
    time_up_at: datetime | None = Field(description="Time by which all of them have reached their time cap.")


SAMPLE = 500  # newest runs read per state
FEWEST = 10  # ended runs needed for a forecast
USUALLY, NEARLY_ALL = 0.5, 0.95
ACTIVE = [str(state) for state in State if state not in ENDED]
# The time that each of the newest runs has taken so far; none for runs that may not start yet.
_LASTED = """
    SELECT v.version, f.ended, greatest(extract(epoch FROM f.lasted), 0)
    FROM unnest(%(versions)s::text[]) AS v(version) CROSS JOIN unnest(%(states)s::text[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT r.ended_at IS NOT NULL AS ended,
               coalesce(r.ended_at, clock_timestamp())
               - greatest(r.created_at, coalesce(r.start_at, r.created_at)) AS lasted
        FROM runs_run r WHERE r.state = s.state AND r.agent = %(agent)s AND r.version = v.version
        ORDER BY r.created_at DESC, r.id DESC LIMIT %(most)s) f"""
# The first and the last start of the active runs, and the latest time by which they have to end.
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
MAX_ACTIVE = 10_000


def forecasts(agent: str, versions: Sequence[str], *, is_counted: Mapping[str, bool]) -> dict[str, ForecastRow]:
    """Return the forecasts of versions with active runs, in two statements.

    `is_counted` tells whether all active runs of a version were counted."""
    if not versions:
        return {}
    parameters: dict[str, Any] = {"agent": agent, "versions": list(versions)}
    with connection.cursor() as cursor:
        cursor.execute(_LASTED, parameters | {"states": list(map(str, State)), "most": SAMPLE})
        lasted: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
        for version, ended, seconds in cursor.fetchall():
            lasted[version].append((float(seconds), ended))
        cursor.execute(_ALIVE, parameters | {"states": ACTIVE, "most": MAX_ACTIVE})
        active = {row[0]: row[1:] for row in cursor.fetchall()}
    return {
        version: _forecast(lasted[version], *active[version], is_counted=is_counted.get(version, True))
        for version in versions
        if version in active
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
) -> ForecastRow:
    usual, nearly = within(lasted, USUALLY), within(lasted, NEARLY_ALL)
    is_enough = is_counted and sum(ended for _, ended in lasted) >= FEWEST
    if not is_counted:
        why = f"more than {MAX_ACTIVE} are active"
    elif not is_enough:
        why = f"fewer than {FEWEST} of its runs have ended"
    elif paused or asking:
        why = _of_people(paused, asking)
    elif nearly is None:
        why = "too many recent runs are still active"
    elif (now - oldest).total_seconds() > nearly:
        why = "some are unusually slow"
    else:
        why = ""
    return ForecastRow(
        earliest=max(now, newest + timedelta(seconds=usual)) if usual is not None and is_enough else None,
        latest=max(now, newest + timedelta(seconds=nearly)) if nearly is not None and not why else None,
        why=why,
        people=paused + asking,
        people_until=people_until,
        time_up_at=None if has_endless or not is_counted else time_up_at,
    )


def _of_people(paused: int, asking: int) -> str:
    parts = [f"{asking} wait{'s' if asking == 1 else ''} for people"] if asking else []
    parts += [f"{paused} {'is' if paused == 1 else 'are'} paused"] if paused else []
    return " and ".join(parts)


def within(lasted: Iterable[tuple[float, bool]], share: float) -> float | None:
    """Return the seconds after which this share of runs has ended; None if unknown.

    Each run is a pair: its time so far, and whether it has ended."""
    left, survive = sorted(lasted, key=lambda one: (one[0], not one[1])), 1.0
    for i, (seconds, ended) in enumerate(left):
        if ended:
            survive *= 1 - 1 / (len(left) - i)
            if survive <= 1 - share + 1e-9:
                return seconds
    return None


# --- versions ---------------------------------------------------------------------------------------------------------

COUNTED_TO = 10_000
MAX_VERSIONS = 500
# Every known version, newest first, with its workers, gate, and runs. It needs one bounded index lookup per version and
# state.
_VERSIONS = """
    SELECT v.version, v.is_known, coalesce(s.beginning, 0), coalesce(s.workers, 0),
           g.is_closed IS TRUE, CASE WHEN g.is_closed THEN g.set_by END,
           CASE WHEN g.is_closed THEN g.set_at END, CASE WHEN g.is_closed THEN g.why END,
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


class VersionRow(Shape):
    """One version of an agent."""

    agent: AgentName
    version: AgentVersion
    is_known: bool = Field(description="Whether a process has or had this version.")
    is_closed: bool = Field(description="Closed to new starts.")
    closed_by: str | None = Field(description="Actor who closed it; null if it is open.")
    closed_at: datetime | None = Field(description="Time when it was closed; null if it is open.")
    why: str | None = Field(description="Justification for closing it; null if it is open.")
    served: bool = Field(description="Whether a live worker executes its runs.")
    workers: int = Field(description="Number of live workers that execute its runs.")
    begins: int = Field(description="Number of these workers that start runs; the others only finish runs.")
    living: int = Field(description="Active runs that you may see; counted up to 10,001 per state.")
    runs: dict[str, int] = Field(description="Runs by state, each counted up to 10,001.")
    forecast: ForecastRow | None = Field(description="Null if no run is active, or if you may not see all of them.")

    @property
    def graph_id(self) -> str:
        return f"{self.agent}@{self.version}"

    @property
    def is_only_drained(self) -> bool:
        return self.workers > 0 == self.begins

    @property
    def counts(self) -> list[tuple[str, str]]:
        """Return the formatted numbers of runs by group of states."""
        counts = [(word, sum(self.runs.get(str(state), 0) for state in states)) for word, states in GROUPS.values()]
        return [(f"{COUNTED_TO:,}+" if n > COUNTED_TO else f"{n:,}", word) for word, n in counts if n]


def versions_of(agent: str, *, only: str = "") -> list[VersionRow]:
    """Return an agent's versions, newest first, or only one of them, in at most three statements.

    Only runs that the viewer may see are counted. The forecast is based on all runs, so only viewers who may see all of
    them get it."""
    who = viewer()
    parameters: dict[str, Any] = {
        "agent": agent,
        "here": [one.version for one in registry.versions(agent)],
        "most": MAX_VERSIONS,
        "states": list(map(str, State)),
        "counted": COUNTED_TO + 1,
        "fresh": FRESH_SECONDS,
        "only": only,
        "sees_all": who.sees_all,
        "person": who.person,
        "tags": sorted(who.tags),
    }
    with connection.cursor() as cursor:
        cursor.execute(_VERSIONS, parameters)
        found = [_version_row(agent, *row) for row in cursor.fetchall()]
    active = {row.version: row.living <= COUNTED_TO for row in found if row.living}
    if who.sees_all:
        expected = forecasts(agent, list(active), is_counted=active)
        for row in found:
            row.forecast = expected.get(row.version)
    return found


def _version_row(
    agent: str,
    version: str,
    is_known: bool,
    begins: int,
    workers: int,
    is_closed: bool,
    closed_by: str | None,
    closed_at: datetime | None,
    why: str | None,
    counts: str,
) -> VersionRow:
    runs: dict[str, int] = json.loads(counts)
    return VersionRow(
        agent=agent,
        version=version,
        is_known=is_known,
        is_closed=is_closed,
        closed_by=closed_by,
        closed_at=closed_at,
        why=why,
        served=workers > 0,
        workers=workers,
        begins=begins,
        living=sum(runs.get(state, 0) for state in ACTIVE),
        runs=runs,
        forecast=None,
    )


# --- ramps ------------------------------------------------------------------------------------------------------------

BOUNDS = ("failed", "rejected", "stopped")
MAX_JUDGED = 1000
# A run and its continuations count as one run. An approval that expired is not counted as rejected. A run that undoes
# its effects before it fails counts as failed. If a run that had begun is migrated off the newer version, it counts as
# stopped, and its later course is still counted. A run has begun once a worker claimed it, even if it failed before its
# first node. Rows are compared as text and not parsed, so that an unreadable row doesn't prevent the evaluation.
_TAKEN_OFF = """o.action = 'migrate' AND o.before ->> 'version' = wanted.graph
                 AND (o.after ->> 'how' <> 'unbegun' OR o.before ->> 'epoch' <> '0')"""
# Tolerance for clock changes. Without a clock change, nothing precedes a ramp's first start.
_SLACK = "interval '1 day'"
_FIGURES = f"""
    SELECT wanted.ramp, figures.*
    FROM unnest(%(ramps)s::bigint[], %(graphs)s::text[], %(after)s::bigint[], %(since)s::timestamptz[])
         AS wanted(ramp, graph, after, since)
    CROSS JOIN LATERAL (
    WITH newest AS (
        SELECT DISTINCT few.run_id FROM (
            (SELECT s.run_id, coalesce(l.ended_at, l.started_at) AS last FROM runs_run l
             JOIN runs_rampstart s ON s.run_id = coalesce(l.first, l.id) AND s.ramp_id = wanted.ramp AND s.is_new
             JOIN runs_run b ON b.id = s.run_id
             WHERE l.graph_id = wanted.graph AND l.started_at IS NOT NULL
               AND (s.id > wanted.after OR b.started_at > wanted.since)
             ORDER BY coalesce(l.ended_at, l.started_at) DESC LIMIT %(most)s)
            UNION ALL
            (SELECT s.run_id, coalesce(l.ended_at, l.started_at) AS last FROM runs_run l
             JOIN runs_rampstart s ON s.run_id = coalesce(l.first, l.id) AND s.ramp_id = wanted.ramp AND s.is_new
             JOIN runs_run b ON b.id = s.run_id
             WHERE l.agent = split_part(wanted.graph, '@', 1) AND l.generation > 0 AND l.started_at IS NOT NULL
               AND l.graph_id <> wanted.graph AND (s.id > wanted.after OR b.started_at > wanted.since)
               AND coalesce(l.ended_at, l.started_at) > (
                   SELECT f.at - {_SLACK} FROM runs_rampstart f WHERE f.ramp_id = wanted.ramp AND f.is_new
                   ORDER BY f.id LIMIT 1)
               AND EXISTS (SELECT 1 FROM ledger_overriderecord o WHERE o.run_id = l.id AND {_TAKEN_OFF})
             ORDER BY last DESC LIMIT %(most)s)
            ORDER BY last DESC LIMIT %(most)s) few
    ), work AS (
        SELECT r.id AS began, r.id, r.state, r.node FROM newest n JOIN runs_run r ON r.id = n.run_id
        UNION ALL
        SELECT r.first, r.id, r.state, r.node FROM newest n JOIN runs_run r ON r.first = n.run_id
    ), judged AS (
        SELECT w.began, bool_or(w.state = 'failed' OR w.node = '_undo' AND EXISTS (
                   SELECT 1 FROM ledger_event u WHERE u.run_id = w.id AND u.kind = 'UndoBegun'
                   AND position(convert_to('"reason":"failed"', 'UTF8') IN u.clear) > 0)) AS failed,
               bool_or(EXISTS (SELECT 1 FROM runs_wait x WHERE x.run_id = w.id AND x.kind = 'approval'
                               AND x.resolution = 'rejected')) AS rejected,
               bool_or(EXISTS (SELECT 1 FROM runs_wait x WHERE x.run_id = w.id AND x.kind = 'operator')
                       OR EXISTS (SELECT 1 FROM ledger_overriderecord o WHERE o.run_id = w.id AND {_TAKEN_OFF})
               ) AS stopped
        FROM work w GROUP BY w.began
    )
    SELECT count(*), count(*) FILTER (WHERE failed), count(*) FILTER (WHERE rejected), count(*) FILTER (WHERE stopped)
    FROM judged) figures"""


class FiguresRow(Shape):
    """Figures of the newest runs (at most 1,000) that the ramp started on the newer version."""

    begun: int = Field(description="Runs started.")
    failed: int = Field(description="Runs that failed.")
    rejected: int = Field(description="Runs with a rejected approval.")
    stopped: int = Field(description="Runs that stopped for an operator.")

    def above(self, ramp: Ramp) -> list[str]:
        """Return the names of exceeded bounds; none before enough runs have begun."""
        if self.begun < ramp.least:
            return []
        return [
            name
            for name in BOUNDS
            if (bound := ramp.bounds.get(name)) is not None and getattr(self, name) * 100 > bound * self.begun
        ]


def figures_of(ramps: Sequence[Ramp]) -> dict[int, FiguresRow]:
    """Return the figures of several ramps, using one statement.

    Only the newest runs are read, so that the query stays fast.
    """
    parameters: dict[str, Any] = {
        "ramps": [ramp.pk for ramp in ramps],
        "graphs": [ramp.to_graph for ramp in ramps],
        "after": [ramp.counted_after for ramp in ramps],
        "since": [ramp.counted_from for ramp in ramps],
        "most": MAX_JUDGED,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FIGURES, parameters)
        return {
            ramp: FiguresRow(begun=begun, failed=failed, rejected=rejected, stopped=stopped)
            for ramp, begun, failed, rejected, stopped in cursor.fetchall()
        }


class RampRow(Shape):
    """A gradual move of an agent's starts to another version. Starts that name a version are not affected."""

    id: int = Field(description="Id of the ramp.")
    agent: AgentName
    from_version: str = Field(description="Version that starts move away from.")
    to_version: str = Field(description="Newer version.")
    state: Literal["on", "halted", "rolled_back", "done"] = Field(description="on, halted, rolled_back or done.")
    share: str = Field(description="Percentage of the starts that go to the newer version.")
    tags: list[str] = Field(description="Tags whose runs start on the newer version.")
    bounds: dict[str, int | None] = Field(description="Percentages above which the ramp halts; null for no bound.")
    at_least: int = Field(description="Number of runs started on the newer version before the bounds apply.")
    revision: int = Field(description="Increases with each change of the ramp.")
    set_by: ActorName
    made_at: datetime = Field(description="Time of creation.")
    halted_at: datetime | None = Field(description="Time when it halted itself; null if it did not.")
    halted_by: dict[str, Any] | None = Field(
        description="Figures that halted it; only for callers who may see all runs."
    )
    ended_at: datetime | None = Field(description="Time when it was finished or rolled back; null: it is active.")
    figures: FiguresRow | None = Field(
        description="Current figures for the bounds; null if the ramp is over, or if you may not see all its runs."
    )
    to_new: int | None = Field(
        description="Starts that went to the newer version, up to 10,001; null whenever `figures` is null."
    )
    to_old: int | None = Field(
        description="Starts that stayed on the older version, up to 10,001; null whenever `figures` is null."
    )

    @property
    def judged(self) -> list[tuple[str, int, int | None]]:
        """Return name, figure and allowed percentage of each bound."""
        return [(name, getattr(self.figures, name), self.bounds.get(name)) for name in BOUNDS]


_SIDES = """
    SELECT ramp, (SELECT count(*) FROM (SELECT 1 FROM runs_rampstart WHERE ramp_id = ramp AND is_new LIMIT %(most)s) n),
           (SELECT count(*) FROM (SELECT 1 FROM runs_rampstart WHERE ramp_id = ramp AND NOT is_new LIMIT %(most)s) o)
    FROM unnest(%(ramps)s::bigint[]) AS wanted(ramp)"""


def ramp_rows(ramps: Sequence[Ramp]) -> list[RampRow]:
    """Return the rows of ramps, in at most two statements. Figures are only for viewers who see all runs."""
    sees_all = viewer().sees_all
    active = [ramp for ramp in ramps if ramp.ended_at is None] if sees_all else []
    figures = figures_of(active) if active else {}
    sides: dict[int, tuple[int | None, int | None]] = {}
    if sees_all and ramps:
        with connection.cursor() as cursor:
            cursor.execute(_SIDES, {"ramps": [ramp.pk for ramp in ramps], "most": COUNTED_TO + 1})
            sides = {ramp: (to_new, to_old) for ramp, to_new, to_old in cursor.fetchall()}
    rows = []
    for ramp in ramps:
        to_new, to_old = sides.get(ramp.pk, (None, None))
        rows.append(
            RampRow.of(
                ramp,
                state=str(ramp.state),
                share=percent(ramp.share),
                at_least=ramp.least,
                halted_by=ramp.halted_by if sees_all else None,
                figures=figures.get(ramp.pk),
                to_new=to_new,
                to_old=to_old,
            )
        )
    return rows


def ramp_row(ramp: Ramp) -> RampRow:
    """Return the row of a ramp."""
    return ramp_rows([ramp])[0]


def percent(share: int) -> str:
    """Return a share (out of 10,000) as a percentage without trailing zeros."""
    whole, rest = divmod(share, 100)
    return f"{whole}.{rest:02}".rstrip("0") if rest else str(whole)


def newest_ramps(agent: str = "", *, limit: int, before: int | None = None) -> list[Ramp]:
    """Return the ramps of one agent or of all, newest first, starting before an id."""
    found = Ramp.objects.order_by("-id")
    found = found.filter(agent=agent) if agent else found
    return list((found if before is None else found.filter(pk__lt=before))[:limit])


def active_ramp(agent: str) -> Ramp | None:
    """Return the agent's ramp that has not ended; None if there is none."""
    return Ramp.objects.filter(agent=agent, ended_at__isnull=True).first()
