"""Verify that the stored bytes of a run's documents are those that its plans name."""

from __future__ import annotations

from collections.abc import Iterator

from approvals.models import Approval
from durableagents.contrib.documents.storage import mismatch, read_contents
from ledger.verification.runs import EventLine, ReadJournal
from runs.engine.gating.documents import named_in


class DocumentBytes:
    """Checks the documents of one run's approvals. `approvals` checks the plans themselves."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: EventLine) -> None:
        """Ignore the journal's events, because the rows of the plans contain all that is needed."""

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each document whose bytes are missing or were changed."""
        for row in self.journal.rows(Approval, "opened_at", "id", batch=20):
            try:
                documents = named_in(row.planned())
            except ValueError as error:
                yield f"approval {row.id}: {error}"
                continue
            for n, document in enumerate(documents, 1):
                if problem := mismatch(document, read_contents([document]).get(document.digest)):
                    yield f"approval {row.id}: document {n} ({document.name!r}): {problem}"
