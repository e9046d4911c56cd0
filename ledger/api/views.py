"""Read-only API views of a run's journal, its side effects and people's acts on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.api.present import content_of, event_row, list_row, override_row, payload_of, sizes_of, verification_row
from ledger.api.schemas import EntryPage, EntryRow, EventPage, OverridePage, VerificationPage, VerificationRow
from ledger.append import is_recorded
from ledger.errors import NotFound, RecordDamaged
from ledger.models import Event, LedgerEntry, OverrideRecord
from ledger.redacted import masked_key
from ledger.spans import span_id
from ledger.verification.registers import verify_registers
from ledger.verification.runs import Verification, verify, verify_all
from ledger.web.api_base import MAX_SEQ, READ, ApiView, Query, described
from ledger.web.downloads import json_file
from ledger.web.roles import APPROVER, AUDITOR, OPERATOR
from ledger.web.seeing.payloads import is_open, must_read
from ledger.web.seeing.viewers import reads

PAGE_BYTES = 4 * 1024 * 1024
# Time limit for verification within one request; the remaining runs go to the next page.
PAGE_SECONDS = 5.0
AUDIT = {"GET": (AUDITOR, OPERATOR, APPROVER)}


class Events(ApiView):
    """Events of a run after `after`, in order. `seq` has no gaps, so following `next` skips nothing."""

    roles = READ

    @described("List a run's events", EventPage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=MAX_SEQ)
        rows = Event.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")
        query.limit = fitting(sizes_of(rows[: query.limit]).values())
        events = rows_of_run(run_id, list(rows[: query.limit + 1]))
        return query.page(events, lambda row: {"after": str(row.seq)}, partial(event_row, is_read=reads(run_id)))


class EventContent(ApiView):
    """The payload of one event as a file, even if it is too large for the list.

    Supports `Range`. Needs the right to read the run's payloads.
    """

    roles = READ

    @described("Download an event's payload", OpenApiTypes.ANY)
    def get(self, request: Request, run_id: UUID, seq: int) -> HttpResponseBase:
        Query(request)
        return event_file(request._request, run_id, seq, content_of)


def event_file(
    request: HttpRequest, run_id: UUID, seq: int, content: Callable[[Event], Any] = payload_of
) -> HttpResponseBase:
    """Return the payload of an event as a file, with the fields that lists leave out.

    Raises NotFound, PayloadsHidden, Erased, RecordDamaged, Busy.
    """
    event = Event.objects.filter(run_id=run_id, seq=seq).first()
    if event is None and not is_recorded(run_id):
        raise NotFound("run", run_id)
    if event is None or not is_open(event.kind):
        must_read(run_id)
    if event is None:
        raise NotFound("event", f"{seq} of run {run_id}")

    def read() -> Any:
        try:
            return content(event)
        except (ValueError, RecursionError) as error:
            raise RecordDamaged(run_id, f"a readable payload of event {seq} ({error})") from error

    return json_file(request, f"{run_id}-event-{seq}.json", read)


class Entries(ApiView):
    """Recorded facts about the run's side effects, in order."""

    roles = READ

    @described("List a run's side effects", EntryPage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        is_read = reads(run_id)
        return by_id(request, run_id, LedgerEntry.objects.all(), lambda row: EntryRow.of(row, **_masked(row, is_read)))


def _masked(row: LedgerEntry, is_read: bool) -> dict[str, str | None]:
    return {
        "key": masked_key(row.key) if is_read else None,
        "span_id": span_id(str(row.run_id), row.slot, row.attempt, "call"),
    }


class Overrides(ApiView):
    """People's acts on the run and their justifications, in order."""

    roles = READ

    @described("List a run's overrides", OverridePage, query=("after", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        return by_id(request, run_id, OverrideRecord.objects.all(), override_row)


class RunVerification(ApiView):
    """Verification of the stored rows, computed for this request.

    A run whose head or rows are missing fails verification; an unknown run is answered with 404.
    """

    roles = READ

    @described("Verify a run's record", VerificationRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        return Response(verification_row(verify(run_id)))


class Verifications(ApiView):
    """Verification of every run, by id.

    A page ends after `limit` runs or a few seconds; follow `next` until it is null. The first page also covers records
    that belong to no run.
    """

    roles = AUDIT

    @described("Verify all records", VerificationPage, query=("cursor", "limit"))
    def get(self, request: Request) -> Response:
        query, until = Query(request, "cursor"), time.monotonic() + PAGE_SECONDS
        after = query.uuid("cursor")
        checked: list[Verification] = []
        for each in verify_all(after):
            checked.append(each)
            if len(checked) > query.limit:
                break
            if time.monotonic() > until:
                query.limit = len(checked)
        answer = query.page(checked, lambda each: {"cursor": str(each.run_id)}, verification_row)
        answer.data["lists"] = [list_row(each) for each in verify_registers()] if after is None else []
        return answer


def fitting(sizes: Iterable[int]) -> int:
    """Return the number of rows for a page: payloads of a few megabytes in total, but at least one row."""
    total = count = 0
    for size in sizes:
        total += size
        if count and total > PAGE_BYTES:
            break
        count += 1
    return max(count, 1)


def by_id(request: Request, run_id: UUID, rows: QuerySet[Any], present: Callable[[Any], Any]) -> Response:
    """Return a page of a run's rows in ascending order. Raises NotFound."""
    query = Query(request, "after")
    after = query.integer("after", default=0, lowest=0, highest=MAX_SEQ)
    records = rows_of_run(run_id, list(rows.filter(run_id=run_id, id__gt=after).order_by("id")[: query.limit + 1]))
    return query.page(records, lambda row: {"after": str(row.id)}, present)


def rows_of_run(run_id: UUID, rows: list[Any]) -> list[Any]:
    """Return `rows` if the run exists. Raises NotFound, so that an unknown run is not an empty list."""
    if not rows and not is_recorded(run_id):
        raise NotFound("run", run_id)
    return rows
