"""SQL conditions that limit a query to the runs a viewer may see.
A restricted list reads indexes by creator and by tag, so its cost doesn't depend on others' runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q
from django.db.models.expressions import RawSQL

from ledger.web.cursors import Condition, Place
from ledger.web.seeing.viewers import Viewer, viewer
from runs.models import Run, State

Sql = tuple[str, list[Any]]
Arm = Mapping[str, str]
_STATES = [state.value for state in State]
_THEIRS = "SELECT id FROM runs_run WHERE creator = %s UNION ALL SELECT run_id FROM runs_runtag WHERE tag = ANY(%s)"


def is_seen(run: str, who: Viewer) -> Sql:
    """Return the condition that a row of runs_run, aliased `run`, is visible."""
    if who.sees_all:
        return "true", []
    tagged = f"EXISTS (SELECT 1 FROM runs_runtag seen WHERE seen.run_id = {run}.id AND seen.tag = ANY(%s))"
    return f"({run}.creator = %s OR {tagged})", [who.person, sorted(who.tags)]


def is_of_seen(column: str, who: Viewer) -> Sql:
    """Return the condition that another table's run is visible; `column` holds the run's id."""
    if who.sees_all:
        return "true", []
    return f"{column} IN ({_THEIRS})", [who.person, sorted(who.tags)]


def arm(who: Viewer, column: str = "run_id") -> dict[str, Any]:
    """Return the same as a list's arm (`ledger/web/cursors.py`); {} for viewers who see everything."""
    if who.sees_all:
        return {}
    text, values = is_of_seen(column, who)
    return {Condition(text): values}


def fits(who: Viewer, at: str = "run") -> Q:
    """Return the same as a Django condition; `at` is the field of the run."""
    if who.sees_all:
        return Q()
    # By run ids instead of joined rows, all of which would be read.
    return Q(**{f"{at}_id__in": RawSQL(_THEIRS, [who.person, sorted(who.tags)])})


def among(run_ids: Iterable[UUID | None], who: Viewer | None = None) -> frozenset[UUID]:
    """Return those of these runs that are visible."""
    who = who or viewer()
    ids = {run_id for run_id in run_ids if run_id is not None}
    if who.sees_all or not ids:
        return frozenset(ids)
    text, values = is_seen("r", who)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT r.id FROM runs_run r WHERE r.id = ANY(%s) AND {text}", [list(ids), *values])
        return frozenset(row[0] for row in cursor.fetchall())


def sees(who: Viewer, run_id: UUID) -> bool:
    return bool(among([run_id], who))


# --- payloads ---------------------------------------------------------------------------------------------------------


def readable(creators: Mapping[UUID, int | None], who: Viewer | None = None) -> frozenset[UUID]:
    """Return those of these visible runs whose payloads may be read, given each with its creator.
    The caller leaves out erased runs, which nobody reads. Viewers who only see their own runs read all of them. Queries
    the database only for viewers with own tags."""
    who = who or viewer()
    if who.reads_all or not who.sees_all:
        return frozenset(creators)
    own = frozenset(run_id for run_id, creator in creators.items() if who.is_own(creator, ()))
    return own | among(creators.keys() - own, replace(who, sees_all=False)) if who.tags else own


def is_erased(run_id: UUID) -> bool:
    """Return whether the run's content was erased."""
    return Run.objects.filter(pk=run_id, erased_at__isnull=False).exists()


def reads(who: Viewer, run_id: UUID) -> bool:
    return who.reads_all or not who.sees_all or bool(among([run_id], replace(who, sees_all=False)))


# --- lists ------------------------------------------------------------------------------------------------------------


def walks(who: Viewer, arms: Sequence[Arm], after: Sql = ("true", [])) -> list[Sql]:
    """Return statements of (run_id, created_at), newest first, that together give the visible runs of any arm.
    Each takes its limit as its last value. `after` is a condition on `created_at, id` of a table `r`."""
    found: list[Sql] = []
    later, place = after
    for each in arms:
        states = [{}] if "state" in each else [{"state": state} for state in _STATES]
        for state in states:
            whole = {**each, **state}
            text = "".join(f" AND r.{column} = %s" for column in whole)
            found.append(
                (
                    "SELECT r.id AS run_id, r.created_at FROM runs_run r WHERE r.creator = %s"
                    f"{text} AND {later} ORDER BY r.created_at DESC, r.id DESC LIMIT %s",
                    [who.person, *whole.values(), *place],
                )
            )
        for tag in sorted(who.tags):
            own = "".join(f" AND own.{column} = %s" for column in each)
            of_run = f"AND EXISTS (SELECT 1 FROM runs_run own WHERE own.id = r.id{own}) " if each else ""
            found.append(
                (
                    "SELECT r.id AS run_id, r.created_at FROM (SELECT run_id AS id, created_at, tag FROM runs_runtag) r"
                    f" WHERE r.tag = %s {of_run}AND {later} ORDER BY r.created_at DESC, r.id DESC LIMIT %s",
                    [tag, *each.values(), *place],
                )
            )
    return found


def newest(who: Viewer, arms: Sequence[Arm], *, limit: int, beyond: Place | None = None) -> RawSQL:
    """Return up to `limit` ids of visible runs of any arm, newest first, after a place."""
    after: Sql = ("true", []) if beyond is None else ("(r.created_at, r.id) < (%s, %s)", list(beyond))
    parts = walks(who, arms, after)
    inner = " UNION ".join(f"({text})" for text, _ in parts)  # UNION: each run once, whatever tags it is visible by
    values = [value for _, given in parts for value in (*given, limit)]
    return RawSQL(
        f"SELECT run_id FROM ({inner}) AS seen ORDER BY created_at DESC, run_id DESC LIMIT %s", [*values, limit]
    )


def counted(who: Viewer, fit: Arm, most: int) -> Sql:
    """Return a statement with one row per visible run that fits, up to `most`."""
    parts = walks(who, [fit])
    inner = " UNION ".join(f"({text})" for text, _ in parts)
    return f"SELECT 1 FROM ({inner}) AS seen LIMIT %s", [*(v for _, given in parts for v in (*given, most)), most]


def id_if_visible(run_id: UUID | None, seen: Collection[UUID]) -> UUID | None:
    """Return the run's id if it is among the visible ones, else None."""
    return run_id if run_id in seen else None
