"""The API's answers about acts on many runs, as documented."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Page, Shape
from runs.models import BatchItem
from runs.queries.bulk.progress import Progress


class BatchRow(Shape):
    """An act on many runs."""

    id: UUID
    action: str
    state: Literal["draft", "running", "stopped", "done"]
    said: dict[str, Any] = Field(
        description="effects, priority, budget, verdict, sender_is_gone; of a receipt its SHA-256."
    )
    receipt: Any = Field(description="As it was given: until it is over, to whoever reads every run's payloads.")
    justification: str
    chosen: dict[str, Any] = Field(description="The filter, or that runs were named; which they are was frozen then.")
    total: int
    done: int
    refused: int
    failed: int = Field(description="The database refused it again and again, or something of ours broke.")
    left: int = Field(description="What nothing has become of: yet, or ever where it was stopped.")
    forecast: dict[str, Any] = Field(
        description="As of when it was made: states, how many it may be done to, which would be refused and why."
    )
    by: str
    made_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    stopped_by: str
    ended_at: datetime | None


class BatchPage(Page):
    results: list[BatchRow]


class BatchItemRow(Shape):
    """One of its runs, and what became of it."""

    n: int
    run: UUID
    outcome: Literal["", "done", "refused", "failed"] = Field(description="Empty: nothing has, yet or ever.")
    code: str
    why: str
    at: datetime | None


class BatchItemPage(Page):
    results: list[BatchItemRow]


def batch_row(one: Progress) -> BatchRow:
    """A batch with how far it has come."""
    return BatchRow.of(
        one.batch,
        state=one.batch.state,
        done=one.done,
        refused=one.refused,
        failed=one.failed,
        left=one.left,
        receipt=one.batch.receipt if viewer().reads_all else None,
    )


def item_row(row: BatchItem) -> BatchItemRow:
    """What became of one run."""
    return BatchItemRow.of(row, run=row.run_id)
