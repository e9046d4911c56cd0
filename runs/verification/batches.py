"""Verification of bulk actions: each record belongs to an authentic batch with this run, done once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ledger.models import ActRecord, OverrideRecord
from ledger.verification.runs import Line, ReadJournal
from runs.models import BatchItem
from runs.services.bulk.working import PROPOSED
from runs.services.settling.agreeing import PROPOSE


class Batches:
    """A run's records against the batches they name, and the batches' outcomes."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: Line) -> None:
        """Do nothing: no event concerns batches."""

    def problems(self) -> Iterator[str]:
        run_id = self.journal.run_id
        records: dict[str, list[OverrideRecord]] = {}
        for row in self.journal.rows(OverrideRecord, "id", after__has_key="batch"):
            if isinstance(row.after, dict):  # otherwise its wrong code is reported
                records.setdefault(str(row.after.get("batch")), []).append(row)
        items = {str(item.batch_id): item for item in BatchItem.objects.filter(run_id=run_id).select_related("batch")}
        for named, rows in records.items():
            yield from self._about(named, rows, items.get(named))
        for named, item in items.items():
            is_done = item.outcome == BatchItem.Outcome.DONE and item.batch.action != "priority"
            if is_done and item.code == PROPOSED:
                if not any(self.journal.rows(ActRecord, after__batch=named, action=PROPOSE)):
                    yield f"batch {named} says that a word on an outcome was put on record, and there is none"
                continue
            if is_done and named not in records:
                yield f"batch {named} says that it was done to this run, and there is no override record of that"

    def _about(self, named: str, rows: list[OverrideRecord], item: BatchItem | None) -> Iterator[str]:
        if len(rows) > 1:
            yield f"batch {named} was done to this run {len(rows)} times"
        if item is None:
            yield f"override record {rows[0].id} names batch {named}, which is not of this run"
            return
        batch = item.batch
        if not batch.is_genuine:
            yield f"batch {named} was not written with this installation's key, or was changed"
        if item.outcome != BatchItem.Outcome.DONE:
            yield f"batch {named} says that it was not done to this run, and override record {rows[0].id} that it was"
        said: dict[str, Any] = {"action": batch.action, "by": batch.by, "justification": batch.justification}
        for name, value in said.items():
            if getattr(rows[0], name) != value:
                yield f"override record {rows[0].id} says of {name} another thing than batch {named}"
