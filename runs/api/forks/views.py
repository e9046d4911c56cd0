"""Over HTTP: where a run can be begun again and what would happen again; and beginning again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.roles import OPERATOR, roles
from ledger.web.seeing.viewers import reads
from runs.api.forks.shapes import (
    DoneRow,
    ForkBody,
    ForkPreview,
    PointRow,
    StartAgainBody,
    StartAgainPreview,
    VerdictBody,
)
from runs.api.once import answered_once
from runs.api.present import one
from runs.api.schemas import RunRow
from runs.engine.forks.evidence import Evidence
from runs.models import ENDED
from runs.services import authority, lifecycle
from runs.services.budgets.starting import most_of
from runs.services.forks import forking
from runs.services.forks.forking import NOT_GIVEN, Wanted
from runs.services.forks.points import points
from runs.services.forks.starting_again import Again, Verdict, remains, start_again


def done_row(effect: Evidence, *, is_read: bool) -> DoneRow:
    """One effect, with its arguments for whoever reads them."""
    return DoneRow.of(effect, run=UUID(effect.run), **({} if is_read else {"arguments": None}))


class RunFork(ApiView):
    """Begin a new run within the course of this one. It sends again, by a person's word, so it stays with operators."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {**READ, "POST": (OPERATOR,)}

    @described("Show where a run can be forked", ForkPreview, query=("visit", "version"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "visit", "version")
        visit = query.integer("visit", default=0, lowest=0, highest=2**31 - 1)
        run = lifecycle.find(run_id)
        is_read = reads(run_id)
        told: dict[str, Any] = {"visit": None, "state": None, "effects": [], "all_are_asked_about": False}
        if query.text("visit") is not None:
            ready = forking.prepared(run, Wanted(visit, version=query.text("version") or ""))
            told = {
                "visit": visit,
                "state": ready.state if is_read else None,
                "effects": [done_row(x, is_read=is_read) for x in ready.cut.effects],
                "all_are_asked_about": ready.cut.fences_all,
            }
        shown = [PointRow.of(x) for x in points(run)]
        return Response(ForkPreview.of(None, points=shown, hidden=not is_read, **told))

    @described("Fork a run", RunRow, status=201, body=ForkBody, headers=("Idempotency-Key",))
    def post(self, request: Request, run_id: UUID) -> HttpResponse:
        run, user = lifecycle.find(run_id), request.user
        authority.role_to("fork", run, held=roles(user), person=user.pk)  # before the body is looked at
        body = read_body(request, ForkBody)
        wanted = Wanted(
            body.visit,
            version=body.version or "",
            state=body.state if "state" in body.model_fields_set else NOT_GIVEN,
            what_if=body.what_if,
            answers=body.answers,
            seen=body.if_effects,
            budget=body.budget,
        )

        def begin() -> tuple[int, RunRow]:
            with transaction.atomic():
                made = forking.fork(
                    run_id, wanted, by=self.by, justification=body.justification, most=most_of(request.auth)
                )
                return 201, one(made.pk)

        return answered_once(request, {"run": str(run_id), "fork": request.data}, begin)


class StartAgain(ApiView):
    """Begin a new run from this one's input, after a person has gone through what it did."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {**READ, "POST": (OPERATOR,)}

    @described("Show what a run did, before it is started again", StartAgainPreview)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        run = lifecycle.find(run_id)
        found, is_read = remains(run), reads(run_id)
        return Response(
            StartAgainPreview.of(
                None,
                has_ended=run.state in ENDED,
                input=found.created.payload if found.created and is_read else None,
                input_is_sound=found.created is not None,
                hidden=not is_read,
                effects=[done_row(x, is_read=is_read) for x in found.effects],
                problems=found.problems,
                all_are_asked_about=found.fences_all,
            )
        )

    @described(
        "Start a run again from its input", RunRow, status=201, body=StartAgainBody, headers=("Idempotency-Key",)
    )
    def post(self, request: Request, run_id: UUID) -> HttpResponse:
        run, user = lifecycle.find(run_id), request.user
        authority.role_to("start_again", run, held=roles(user), person=user.pk)  # before the body is looked at
        body = read_body(request, StartAgainBody)
        wanted = Again(
            audit=[_verdict(each) for each in body.audit],
            version=body.version or "",
            budget=body.budget,
            input=body.input if "input" in body.model_fields_set else NOT_GIVEN,
        )

        def begin() -> tuple[int, RunRow]:
            with transaction.atomic():
                made = start_again(
                    run_id, wanted, by=self.by, justification=body.justification, most=most_of(request.auth)
                )
                return 201, one(made.pk)

        return answered_once(request, {"run": str(run_id), "start_again": request.data}, begin)


def _verdict(body: VerdictBody) -> Verdict:
    result = body.result if "result" in body.model_fields_set else NOT_GIVEN
    return Verdict(
        body.slot, body.attempt, body.counts_as, run=body.run, result=result, sender_is_gone=body.sender_is_gone
    )
