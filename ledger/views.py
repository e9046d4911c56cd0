"""Whether a run's journal is what was written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max
from django.http import HttpRequest, HttpResponse

from ledger import chain
from ledger.errors import NotFound
from ledger.events import columns
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
    links: list[chain.Link] = []
    strangers: list[str] = []
    for row in rows.iterator(chunk_size=2000):
        sealed = None if row.sealed is None else bytes(row.sealed)
        links.append(
            chain.Link(row.seq, row.epoch, row.at, bytes(row.clear), sealed, bytes(row.prev_hash), bytes(row.hash))
        )
        if not _agree(row):
            strangers.append(
                f"event {row.seq}: its columns say {row.kind} at {row.slot}, its content says something else"
            )
    problems = chain.verify(run_id, links) + strangers
    last = links[-1] if links else None
    if last is None or last.seq != head.seq:
        problems.append(f"the journal ends at event {last.seq if last else 0}, the head says {head.seq}")
    elif last.hash != bytes(head.chain):
        problems.append("the last event's hash is not the one that the head names")
    newest = Event.objects.filter(run_id=run_id).aggregate(seq=Max("seq"))["seq"] or 0
    if newest > Head.objects.get(pk=run_id).seq:  # read in this order, an event just appended is known to the head
        problems.append(f"event {newest} is in the journal, but the head knows nothing of it")
    return Verification(
        len(links), links[0].at if links else None, last.at if last else None, bytes(head.chain).hex(), problems
    )


def _agree(row: Event) -> bool:
    """Whether a row's columns say what its hashed bytes say."""
    try:
        return columns(row.clear) == (row.kind, row.slot, row.attempt, row.fact)
    except (KeyError, TypeError, ValueError):
        return False
