"""When the last run of a version may end: from how long its runs have taken, and what those under way wait for.

How long is estimated from its newest runs, ended or not (Kaplan and Meier): runs that ended early say nothing of those
that are still at work, so an estimate from the ended ones alone would be too short. What can't be told is said so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from runs.models import ENDED, State

SAMPLE = 500  # of the newest runs of each state
FEWEST = 10  # that have ended
USUALLY, NEARLY_ALL = 0.5, 0.95
LIVING = [str(state) for state in State if state not in ENDED]
# How long each of the newest runs took, or has taken so far; one whose time is to come has taken none.
_LASTED = """
    SELECT v.version, f.ended, greatest(extract(epoch FROM f.lasted), 0)
    FROM unnest(%(versions)s::text[]) AS v(version) CROSS JOIN unnest(%(states)s::text[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT r.ended_at IS NOT NULL AS ended,
               coalesce(r.ended_at, clock_timestamp())
               - greatest(r.created_at, coalesce(r.start_at, r.created_at)) AS lasted
        FROM runs_run r WHERE r.state = s.state AND r.agent = %(agent)s AND r.version = v.version
          AND r.fork_how <> 'what_if'
        ORDER BY r.created_at DESC, r.id DESC LIMIT %(most)s) f"""
# The newest and the oldest under way by their start, and until when at the latest something happens to each: its time
# is up, or what it waits for.
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
    """When the last run under way may end: `earliest` as such runs usually take, `latest` as nearly all do; None: it
    can't be told, and `why` says why. `people` are the runs that wait for a person or are paused; what these wait for
    has its last deadline at `people_until`. `time_up_at` is when the time of all of them is up."""

    earliest: datetime | None = None
    latest: datetime | None = None
    why: str = ""
    people: int = 0
    people_until: datetime | None = None
    time_up_at: datetime | None = None


def forecasts(agent: str, versions: Sequence[str], *, is_counted: Mapping[str, bool]) -> dict[str, Forecast]:
    """Of these versions, each with runs under way, in two statements."""
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
        why = f"more than {MOST_ALIVE} are under way"
    elif sum(ended for _, ended in lasted) < FEWEST:
        why = f"fewer than {FEWEST} of its runs have ended"
    elif paused or asking:
        why = _of_people(paused, asking)
    elif nearly is None or latest is None:
        why = "too many of its newest runs are under way still"
    elif (now - oldest).total_seconds() > nearly:
        why = "some have taken longer than nearly all others did"
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
    """After how many seconds this share of runs has ended, by runs of which some have not (their time so far, False).
    None: they don't tell."""
    left, survive = sorted(lasted, key=lambda one: (one[0], not one[1])), 1.0
    for i, (seconds, ended) in enumerate(left):
        if ended:
            survive *= 1 - 1 / (len(left) - i)
            if survive <= 1 - share + 1e-9:
                return seconds
    return None
