"""Runs that may be doing the same work: forks, restarts and continuations of a run.
No run knows what the others do, so a run isn't resumed while a related one is active, or has done work that this run
doesn't know of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, UUIDField
from django.db.models.expressions import RawSQL

from runs import seen
from runs.engine.errors import JournalBroken
from runs.journal.reader import forked_of
from runs.models import Run

# Each related run: whether it continues the run itself (is_own), and whether it was started from it (is_below). Each
# step uses a key or an index for its direction: runs_run_one_heir, runs_run_forks. Damaged rows may form a cycle, so
# each run is included only once. A fork knows the work done before it was created, so other runs matter only if they
# have worked since; a run that isn't a fork knows nothing about the others.
_RELATED = """
    WITH RECURSIVE kin(id, is_own, is_below) AS (
        SELECT {of}::uuid, true, true
        UNION
        SELECT other.id, other.is_own, other.is_below
        FROM kin JOIN runs_run AS r ON r.id = kin.id CROSS JOIN LATERAL (
            SELECT r.came_from, kin.is_own, kin.is_below
            UNION ALL SELECT h.id, kin.is_own, kin.is_below FROM runs_run AS h WHERE h.came_from = r.id
            UNION ALL SELECT r.parent, kin.is_own, kin.is_own
            UNION ALL SELECT r.forked_from, false, false
            UNION ALL SELECT f.id, false, kin.is_below FROM runs_run AS f WHERE f.forked_from = r.id
        ) AS other(id, is_own, is_below) WHERE other.id IS NOT NULL
    ), fork AS (
        SELECT r.id, r.created_at FROM kin JOIN runs_run AS r ON r.id = kin.id
        WHERE kin.is_own AND r.forked_from IS NOT NULL ORDER BY r.created_at DESC LIMIT 1
    ), since AS (SELECT coalesce((SELECT created_at FROM fork), '-infinity'::timestamptz) AS at
    ), others AS (
        SELECT x.id, x.created_at, bool_or(kin.is_below) AS is_below FROM kin JOIN runs_run AS x ON x.id = kin.id
        WHERE x.id NOT IN (SELECT id FROM kin WHERE is_own) AND (
            x.ended_at IS NULL
            OR EXISTS (SELECT 1 FROM ledger_ledgerentry AS l WHERE l.run_id = x.id AND l.at >= (SELECT at FROM since))
            OR EXISTS (SELECT 1 FROM runs_run AS c WHERE c.parent = x.id AND c.created_at >= (SELECT at FROM since)))
        GROUP BY x.id
    )"""
_OTHERS = f"""{_RELATED}
    SELECT others.id, is_below, (SELECT fork.id FROM fork) FROM others
    ORDER BY is_below DESC, created_at DESC, others.id"""
_NEWEST = f"{_RELATED} SELECT others.id FROM others WHERE is_below ORDER BY created_at DESC, others.id LIMIT 1"
# The first run of the lineage. That run's row may have been deleted.
_LOCK = """
    WITH RECURSIVE up(id) AS (
        SELECT %s::uuid UNION SELECT coalesce(r.forked_from, r.first, r.parent)
        FROM up JOIN runs_run AS r ON r.id = up.id WHERE coalesce(r.forked_from, r.first, r.parent) IS NOT NULL
    ), top AS (SELECT up.id FROM up LEFT JOIN runs_run AS r ON r.id = up.id
               ORDER BY coalesce(r.forked_from, r.first, r.parent) IS NOT NULL, up.id LIMIT 1)
    SELECT pg_advisory_xact_lock(hashtextextended(top.id::text, 53)) FROM top"""


@dataclass(frozen=True, slots=True)
class RelatedRun:
    """A run that does the same work. `is_below` means that it was started from the run in question."""

    run: UUID
    is_below: bool


def lock(run_id: UUID) -> None:
    """Lock the related runs until the transaction ends, before one is forked or resumed.
    The lock is taken after the run's own head; its holder locks no other head."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [run_id])


def find_related_runs(run: Run) -> list[RelatedRun]:
    """Return related runs that are active or did work unknown to this run: its own forks first, newest first."""
    return [RelatedRun(row[0], row[1]) for row in _rows(run)]


def crowded(run_ids: Iterable[UUID]) -> frozenset[UUID]:
    """Return which of these runs have a related run as returned by `find_related_runs`."""
    some = RawSQL(f"EXISTS ({_RELATED.format(of='runs_run.id')} SELECT 1 FROM others)", [], output_field=BooleanField())
    return frozenset(Run.objects.filter(pk__in=list(run_ids)).filter(some).values_list("pk", flat=True))


def find_competing_run(run: Run) -> RelatedRun | None:
    """Return the run that prevents a person from resuming this one; None if there is none.
    A fork that asks about each call may run in parallel with all runs except its own forks. A run that is undoing its
    effects does no work that another could do, and could not end in any other way."""
    is_undoing = run.is_undoing and run.ended_at is None
    rows = [] if is_undoing else _rows(run)
    if not rows or (not rows[0][1] and _asks_about_all(rows[0][2])):
        return None
    return RelatedRun(rows[0][0], rows[0][1])


def _rows(run: Run) -> list[tuple[UUID, bool, UUID | None]]:
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS.format(of="%s"), [run.pk])
        return cursor.fetchall()


def _asks_about_all(fork: UUID | None) -> bool:
    """Return whether a fork is recorded as asking about each call. Return False if the record is unreadable."""
    try:
        forked = None if fork is None else forked_of(fork)
    except JournalBroken:
        return False
    return forked is not None and forked.fences_all


def why_not(other: RelatedRun) -> str:
    """Return why the other run prevents this one from being resumed, and what to do."""
    if not seen.among([other.run]):
        return "Someone started the same work again as another run, which doesn't know the work of this run."
    what = "The run was started again as" if other.is_below else "The same work was forked or continued as"
    return (
        f"{what} run {other.run}, whose work this run does not know: continue that run, or fork this one at its newest "
        "visit, where each call is confirmed."
    )


def begun_again_as() -> RawSQL:
    """Return a query expression for the newest run that was started from each run, and is active or has done work."""
    return RawSQL(f"({_NEWEST.format(of='runs_run.id')})", [], output_field=UUIDField())
