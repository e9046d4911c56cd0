"""What happened to a run, read only: its journal, its side effects, what people did to it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models.functions import Length
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import APPROVER_FINANCE, APPROVER_LEGAL, AUDITOR, OPERATOR
from ledger.append import is_recorded
from ledger.errors import NotFound
from ledger.models import Event, LedgerEntry, OverrideRecord
from ledger.present import present_entry, present_event, present_list, present_override, present_verification
from ledger.registers import verify_registers
from ledger.rest import MAX_SEQ, READ, ApiView, Query, described
from ledger.shapes import EntryPage, EventPage, OverridePage, VerificationPage, VerificationRow
from ledger.verification import Verification, verify, verify_all

PAGE_BYTES = 4 * 1024 * 1024
# How long one answer may go on verifying: what is left is the next page.
PAGE_SECONDS = 5.0
AUDIT = {"GET": (AUDITOR, OPERATOR, APPROVER_FINANCE, APPROVER_LEGAL)}


class Events(ApiView):
    """`?after=seq`: what came later, ascending. Following `next` never skips: seq is gapless."""

    roles = READ

    @described("A run's journal", EventPage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=MAX_SEQ)
        rows = Event.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")
        query.limit = fitting(rows.annotate(size=Length("sealed")).values_list("size", flat=True)[: query.limit])
        found = known(run_id, list(rows[: query.limit + 1]))
        return query.page(found, lambda row: {"after": str(row.seq)}, present_event)


class Entries(ApiView):
    """The side-effect ledger, ascending."""

    roles = READ

    @described("A run's side effects", EntryPage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=MAX_SEQ)
        rows = LedgerEntry.objects.filter(run_id=run_id, id__gt=after).order_by("id")
        found = known(run_id, list(rows[: query.limit + 1]))
        return query.page(found, lambda row: {"after": str(row.id)}, present_entry)


class Overrides(ApiView):
    """What people did to the run, and why, ascending."""

    roles = READ

    @described("What people did to a run", OverridePage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=MAX_SEQ)
        rows = OverrideRecord.objects.filter(run_id=run_id, id__gt=after).order_by("id")
        found = known(run_id, list(rows[: query.limit + 1]))
        return query.page(found, lambda row: {"after": str(row.id)}, present_override)


class RunVerification(ApiView):
    """Computed from the stored rows, now. A run whose head or row is gone is an alarm; only one without any trace is unknown."""

    roles = READ

    @described("Whether a run's record is what was written", VerificationRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        return Response(present_verification(verify(run_id)))


class Verifications(ApiView):
    """Every run, by id. A page ends after `limit` runs or a few seconds; following `next` comes to all of them. The first page also tells of
    the records that belong to no run."""

    roles = AUDIT

    @described("Whether the whole record is what was written", VerificationPage, query=("cursor", "limit"))
    def get(self, request: Request) -> Response:
        query, until = Query(request, "cursor"), time.monotonic() + PAGE_SECONDS
        after = query.uuid("cursor")
        found: list[Verification] = []
        for each in verify_all(after):
            found.append(each)
            if len(found) > query.limit:
                break
            if time.monotonic() > until:
                query.limit = len(found)
        answer = query.page(found, lambda each: {"cursor": str(each.run_id)}, present_verification)
        answer.data["lists"] = [present_list(each) for each in verify_registers()] if after is None else []
        return answer


def fitting(sizes: Iterable[int | None]) -> int:
    """How many rows make a page: stored payloads of a few megabytes together, or one row however large."""
    total = count = 0
    for size in sizes:
        total += size or 0
        if count and total > PAGE_BYTES:
            break
        count += 1
    return max(count, 1)


def known(run_id: UUID, rows: list[Any]) -> list[Any]:
    """`rows` as they are, if the run exists: an empty list must not stand for an unknown run. Raises NotFound."""
    if not rows and not is_recorded(run_id):
        raise NotFound("run", run_id)
    return rows
