"""SQL conditions that limit a query to the runs a viewer may see.
Restricted lists use indexes by creator and by tag, so their cost doesn't depend on other people's runs."""

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
    """Return the SQL condition that a row of runs_run (with the alias `run`) is visible."""
    if who.sees_all:
        return "true", []
    tagged = f"EXISTS (SELECT 1 FROM runs_runtag seen WHERE seen.run_id = {run}.id AND seen.tag = ANY(%s))"
    return f"({run}.creator = %s OR {tagged})", [who.person, sorted(who.tags)]


def is_of_seen(column: str, who: Viewer) -> Sql:
    """Return the SQL condition that a row's run is visible; `column` contains the run's id."""
    if who.sees_all:
        return "true", []
    return f"{column} IN ({_THEIRS})", [who.person, sorted(who.tags)]


def arm(who: Viewer, column: str = "run_id") -> dict[str, Any]:
    """Return the condition for visible rows as a branch of a list's UNION (`ledger/web/cursors.py`).
    The result is {} for viewers who see everything."""
    if who.sees_all:
        return {}
    text, values = is_of_seen(column, who)
    return {Condition(text): values}


def fits(who: Viewer, at: str = "run") -> Q:
    """Return the condition for visible rows as a Django `Q` object; `at` is the name of the foreign key to the run."""
    if who.sees_all:
        return Q()
    # Compare run ids instead of joining, which would read every joined row.
    return Q(**{f"{at}_id__in": RawSQL(_THEIRS, [who.person, sorted(who.tags)])})


def among(run_ids: Iterable[UUID | None], who: Viewer | None = None) -> frozenset[UUID]:
    """Return which of these runs are visible."""
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
    """Return the visible runs whose payloads may be read, given the creators by run.
    Erased runs, which nobody may read, must be left out by the caller. Viewers who only see their own runs may read all
    of them. The database is only queried for viewers who own tags."""
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
    """Return statements that select (run_id, created_at) of the visible runs that match any of `arms`.
    Each is ordered newest first, and its last parameter is its limit. `after` is a condition on `created_at, id` of a
    table `r`."""
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
    """Return a query of up to `limit` ids of visible runs that match any of `arms`, after a position.
    The newest come first."""
    after: Sql = ("true", []) if beyond is None else ("(r.created_at, r.id) < (%s, %s)", list(beyond))
    parts = walks(who, arms, after)
    # UNION removes duplicates: a run may be visible through several tags
    inner = " UNION ".join(f"({text})" for text, _ in parts)
    values = [value for _, given in parts for value in (*given, limit)]
    return RawSQL(
        f"SELECT run_id FROM ({inner}) AS seen ORDER BY created_at DESC, run_id DESC LIMIT %s", [*values, limit]
    )


def counted(who: Viewer, fit: Arm, most: int) -> Sql:
    """Return a statement with one row for each matching visible run, but at most `most` rows."""
    parts = walks(who, [fit])
    inner = " UNION ".join(f"({text})" for text, _ in parts)
    return f"SELECT 1 FROM ({inner}) AS seen LIMIT %s", [*(v for _, given in parts for v in (*given, most)), most]


def id_if_visible(run_id: UUID | None, seen: Collection[UUID]) -> UUID | None:
    """Return the run's id if it is among the visible ones, else None."""
    return run_id if run_id in seen else None
