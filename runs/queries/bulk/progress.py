"""How far acts on many runs have come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count

from ledger.web.cursors import Place
from runs import seen
from runs.models import Batch, BatchItem
from runs.services.bulk.acts import sees_all


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch, and how many of its runs came to what. `left` is what nothing has become of: yet, or ever where it was
    stopped."""

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
    """How far each has come, in one query."""
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
    """Those that somebody may see, newest first."""
    batches = Batch.objects.all() if sees_all(held) else Batch.objects.filter(person=person)
    if beyond is not None:
        at, batch_id = beyond
        batches = batches.filter(made_at__lte=at).exclude(made_at=at, id__gte=batch_id)
    return list(batches.order_by("-made_at", "-id")[:limit])


def items(batch: Batch, *, outcome: str | None = None, after: int = 0, limit: int) -> list[BatchItem]:
    """What became of its runs, in their order: of all, or of those with an outcome (empty: of none yet)."""
    rows = batch.items.filter(n__gt=after)
    if outcome is not None:
        rows = rows.filter(outcome=outcome)
    return list(rows.order_by("n")[:limit])


def shown_runs(rows: Iterable[BatchItem]) -> frozenset[UUID]:
    """Those of their runs that whoever looks sees."""
    return seen.among(row.run_id for row in rows)
