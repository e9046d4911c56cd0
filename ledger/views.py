"""Whether a run's journal is what was written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from ledger import chain
from ledger.errors import NotFound
from ledger.models import Event, Head
from ledger.pages import Page


class VerificationPage(Page):
    """A run's hash chain, computed again from the stored bytes."""

    template = "audit/verification.html"
    section = "audit"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        head = Head.objects.filter(run_id=run_id).first()
        if head is None:
            raise NotFound("run", run_id)
        return self.show(request, {"v": verify(run_id, head), "run_id": run_id})


@dataclass(frozen=True, slots=True)
class Verification:
    """What checking a run's chain found. `problems` is empty when it holds."""

    events: int
    first_at: datetime | None
    last_at: datetime | None
    head_hash: str
    problems: list[str]


def verify(run_id: UUID, head: Head) -> Verification:
    """Recompute every link, and compare where the chain ends with what the head says."""
    rows = Event.objects.filter(run_id=run_id, seq__lte=head.seq).order_by("seq")
    links = [
        chain.Link(row.seq, row.epoch, row.at, bytes(row.clear), None if row.sealed is None else bytes(row.sealed), bytes(row.prev_hash), bytes(row.hash))
        for row in rows.iterator(chunk_size=2000)
    ]
    problems = chain.verify(run_id, links)
    last = links[-1] if links else None
    if last is None or last.seq != head.seq:
        problems.append(f"the journal ends at event {last.seq if last else 0}, the head says {head.seq}")
    elif last.hash != bytes(head.chain):
        problems.append("the last event's hash is not the one that the head names")
    return Verification(len(links), links[0].at if links else None, last.at if last else None, bytes(head.chain).hex(), problems)
