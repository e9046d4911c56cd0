"""Verify erasures: event, register, act and destroyed key must agree."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from approvals.models import Decision, Delegation, Inquiry
from durableagents.contrib.encryption.models import Erasure, RunKey
from ledger import events as e
from ledger.models import ActRecord
from ledger.verification.registers import Listed
from ledger.verification.runs import SLACK, EventLine, ReadJournal, compared
from runs.models import Run


class Erased:
    """Checks that register entry, act and destroyed key agree for a run whose journal ends with an erasure.

    No other run may have a register entry.
    """

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.line: EventLine | None = None
        self.event: e.ContentErased | None = None
        self.last = 0

    def see(self, line: EventLine) -> None:
        self.last = line.seq
        if isinstance(line.event, e.ContentErased):
            self.line, self.event = line, line.event

    def problems(self) -> Iterator[str]:
        row, run = self.journal.row(Erasure), self.journal.row(Run)
        if self.line is None or self.event is None:
            if row is not None or (run is not None and run.erased_at is not None):
                yield "it is marked as erased, but no event records the erasure"
            return
        what, at = f"event {self.line.seq}, ContentErased,", self.line.at
        if self.last != self.line.seq:
            yield f"{what} is not the last event of the run"
        if row is None:
            yield f"{what} has no entry in the erasure register"
        else:
            fields = {"seq": self.line.seq, "by": self.event.by, "role": self.event.role, "reason": self.event.reason}
            yield from compared("the erasure register", row, fields | {"at": at})
        if run is not None and run.erased_at != at:
            yield f"{what} differs from the run's row"
        if RunKey.objects.filter(run_id=self.journal.run_id).exists():
            yield f"{what} says that the run's key was destroyed, but it exists: it was restored"
        yield from self._rows_of_people()
        if not _has_act(self.journal.run_id, self.line, self.event):
            yield f"{what} has no record of the act"

    def _rows_of_people(self) -> Iterator[str]:
        """Check the codes of rows whose features can no longer compare them with the erased payloads."""
        decisions = Decision.objects.filter(approval__run_id=self.journal.run_id)
        rows = (*decisions, *self.journal.rows(Inquiry, "id"), *self.journal.rows(Delegation, "id"))
        for row in rows:
            if not row.is_authentic:
                yield f"{row._meta.verbose_name} {row.pk} was not written with this installation's key, or was changed"


def _has_act(run_id: UUID, line: EventLine, event: e.ContentErased) -> bool:
    acts = ActRecord.objects.filter(action="erase", by=event.by, at__gte=line.at - SLACK, at__lte=line.at + SLACK)
    return any(str(run_id) in _runs(act) for act in acts if act.n is not None)


def _runs(act: ActRecord) -> list[str]:
    runs = act.after.get("runs") if isinstance(act.after, dict) else None
    return [str(each) for each in runs] if isinstance(runs, list) else []


def every_erasure() -> Listed | None:
    """Check that each act has its register entries; None if nothing was ever erased. Each run is checked separately."""
    found = set(map(str, Erasure.objects.values_list("run_id", flat=True)))
    acts = ActRecord.objects.filter(action="erase", n__gt=0)
    problems = [
        f"act record {act.id} erased run {run_id}, but the erasure register has no entry for it"
        for act in acts
        for run_id in _runs(act)
        if run_id not in found
    ]
    return Listed("erasures", len(found), "", problems) if found or problems else None
