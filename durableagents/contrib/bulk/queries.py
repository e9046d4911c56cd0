"""Find the runs for a batch within the viewer's access scope, and a batch's progress."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count

from durableagents.contrib.bulk.models import Batch, BatchItem
from durableagents.contrib.bulk.services import MAX_RUNS, BatchBody, sees_all
from ledger.errors import InvalidInput
from ledger.web.cursors import Place
from runs import seen
from runs.queries.run_list import Filters, ids_of, stretch
from runs.queries.searching import MAX_FOUND
from runs.services.bodies import RunFilter

_PAGE_SIZE = 1000
_MAX_PAGES = 50  # maximum number of pages of an attribute search


def choose(body: BatchBody) -> tuple[list[UUID], dict[str, Any]]:
    """Return the chosen runs, at most one more than allowed, and how they were chosen. Raises InvalidInput."""
    if body.filter is None:
        return list(body.runs or []), {"runs": len(body.runs or [])}
    return matching(body.filter), {
        "filter": {n: value for n, value in body.filter.model_dump(mode="json").items() if value}
    }


def matching(choice: RunFilter, *, most: int = MAX_RUNS + 1) -> list[UUID]:
    """Return all matching runs, newest first.

    Raises InvalidInput for an unreadable filter (it would match every run), and for words that may match more runs than
    a search examines.
    """
    filters = Filters.of(choice.model_dump())
    misread = [name for name in RunFilter.model_fields if getattr(choice, name) and not getattr(filters, name)]
    if misread:
        fixes = {"business_key": "give the agent too", "trace_id": "send its 32 lowercase hex digits"}
        problems = [
            {"field": f"filter.{n}", "problem": "is unknown", "fix": fixes.get(n, "choose it from the list")}
            for n in misread
        ]
        raise InvalidInput(f"Invalid filter: {', '.join(misread)}.", errors=problems)
    if filters.found.is_cut:
        fix = "search by attribute, or list the runs"
        raise InvalidInput(
            f"The search may match more than {MAX_FOUND:,} runs, which is the maximum.",
            errors=[{"field": "filter.q", "problem": "matches more runs than a search reads", "fix": fix}],
        )
    if filters.by_attributes is not None:
        return _by_attributes(filters, most)
    if filters.q and not filters.conditions:
        return [one.id for one in filters.found.matches if not filters.states or one.state in filters.states][:most]
    return ids_of(filters, most)


def _by_attributes(filters: Filters, most: int) -> list[UUID]:
    cursor, ids = "", list[UUID]()
    for _ in range(_MAX_PAGES):
        some = stretch(filters, limit=min(_PAGE_SIZE, most - len(ids)), cursor=cursor)
        if some is None:
            break
        ids += [run.pk for run in some.runs]
        cursor = some.following
        if not cursor or len(ids) >= most:
            return ids
    fix = "narrow it, by state or agent"
    raise InvalidInput(
        "The filter is too slow.",
        errors=[{"field": "filter", "problem": "takes too long", "fix": fix}],
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch with counts of outcomes. `left` counts runs not yet processed or, in a stopped batch, never processed."""

    batch: Batch
    done: int
    refused: int
    failed: int

    @property
    def left(self) -> int:
        return self.batch.total - self.done - self.refused - self.failed

    @property
    def percent(self) -> int:
        return 100 * (self.batch.total - self.left) // max(self.batch.total, 1)


def progress_of(batches: Iterable[Batch]) -> list[Progress]:
    """Return the progress of each batch, in one query."""
    batches = list(batches)
    counted: dict[UUID, dict[str, int]] = {batch.pk: {} for batch in batches}
    rows = BatchItem.objects.filter(batch_id__in=list(counted)).exclude(outcome="")
    for batch_id, outcome, number in rows.values_list("batch_id", "outcome").annotate(number=Count("id")):
        counted[batch_id][outcome] = number
    return [
        Progress(batch, *(counted[batch.pk].get(outcome, 0) for outcome in ("done", "refused", "failed")))
        for batch in batches
    ]


def newest(*, person: int | None, held: frozenset[str], limit: int, beyond: Place | None = None) -> list[Batch]:
    batches = Batch.objects.all() if sees_all(held) else Batch.objects.filter(person=person)
    if beyond is not None:
        at, batch_id = beyond
        batches = batches.filter(made_at__lte=at).exclude(made_at=at, id__gte=batch_id)
    return list(batches.order_by("-made_at", "-id")[:limit])


def items(batch: Batch, *, outcome: str | None = None, after: int = 0, limit: int) -> list[BatchItem]:
    """Return a batch's items in order, all of them or those with one outcome ("" for pending)."""
    rows = batch.items.filter(n__gt=after)
    if outcome is not None:
        rows = rows.filter(outcome=outcome)
    return list(rows.order_by("n")[:limit])


def visible_runs(rows: Iterable[BatchItem]) -> frozenset[UUID]:
    return seen.among(row.run_id for row in rows)
