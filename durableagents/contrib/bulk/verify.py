"""Verify batches: a record that names a batch must match an authentic batch that contains the run and acted once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from durableagents.contrib.bulk.models import BatchItem
from durableagents.contrib.bulk.working import PROPOSED
from ledger.models import ActRecord, OverrideRecord
from ledger.verification.runs import EventLine, ReadJournal
from runs.services.settling.agreeing import PROPOSE


class Batches:
    """Compares a run's records with the batches they name, and with the batches' outcomes."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: EventLine) -> None:
        """Do nothing, because no event concerns batches."""

    def problems(self) -> Iterator[str]:
        run_id = self.journal.run_id
        records: dict[str, list[OverrideRecord]] = {}
        for row in self.journal.rows(OverrideRecord, "id", after__has_key="batch"):
            if isinstance(row.after, dict):  # if the batch isn't authentic, its wrong code is reported instead
                records.setdefault(str(row.after.get("batch")), []).append(row)
        items = {str(item.batch_id): item for item in BatchItem.objects.filter(run_id=run_id).select_related("batch")}
        for named, rows in records.items():
            yield from self._check(named, rows, items.get(named))
        for named, item in items.items():
            is_done = item.outcome == BatchItem.Outcome.DONE and item.batch.action != "priority"
            if is_done and item.code == PROPOSED:
                if not any(self.journal.rows(ActRecord, after__batch=named, action=PROPOSE)):
                    yield f"batch {named} claims that an outcome was proposed, but no record shows it"
                continue
            if is_done and named not in records:
                yield f"batch {named} claims that it acted on this run, but no override record shows it"

    def _check(self, named: str, rows: list[OverrideRecord], item: BatchItem | None) -> Iterator[str]:
        if len(rows) > 1:
            yield f"batch {named} acted on this run {len(rows)} times"
        if item is None:
            yield f"override record {rows[0].id} names batch {named}, which does not contain this run"
            return
        batch = item.batch
        if not batch.is_authentic:
            yield f"batch {named} was written or changed outside the application"
        if item.outcome != BatchItem.Outcome.DONE:
            yield f"batch {named} and override record {rows[0].id} differ on whether it acted on this run"
        fields: dict[str, Any] = {"action": batch.action, "by": batch.by, "justification": batch.justification}
        for name, value in fields.items():
            if getattr(rows[0], name) != value:
                yield f"override record {rows[0].id} and batch {named} differ in the field {name}"
