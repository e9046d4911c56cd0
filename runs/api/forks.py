"""What is said and asked about forks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.bodies import Strict
from ledger.web.roles import OPERATOR, roles
from ledger.web.seeing.viewers import reads
from ledger.web.shapes import Shape
from runs.api.once import answered_once
from runs.api.present import one
from runs.api.schemas import RunRow
from runs.engine.budget import Budget
from runs.engine.forks import Evidence
from runs.models import ENDED
from runs.services import authority, lifecycle
from runs.services.bodies import SteerBody
from runs.services.budgets.starting import most_of
from runs.services.forks import forking
from runs.services.forks.forking import NOT_GIVEN, Wanted
from runs.services.forks.points import points
from runs.services.forks.starting_again import Again, Verdict, remains, start_again

MOST_ANSWERS = 100


class ForkBody(SteerBody):
    """Begin a new run at the beginning of a visit of this one."""

    visit: Annotated[int, Field(description="See GET …/fork; 1 is the first.")]
    version: Annotated[str, Field(max_length=50)] | None = Field(
        default=None, description="Of the same agent; left out: the run's own."
    )
    state: Any = Field(default=None, description="In the place of the recorded one; left out: that.")
    what_if: bool = Field(default=False, description="Nothing is sent: its calls are answered from the record.")
    answers: Annotated[dict[str, Any], Field(max_length=MOST_ANSWERS)] | None = Field(
        default=None, description="Of a what-if: what a tool gives that isn't on record, by its name."
    )
    if_effects: int | None = Field(
        default=None, description="How many effects you have seen after that point: with others by now, 409."
    )
    budget: Budget | None = None


class PointRow(Shape):
    """The beginning of a visit."""

    visit: int
    node: str
    seq: int = Field(description="The event that it began with.")
    at: datetime
    problem: str = Field(description="Why no fork can begin here; empty: one can.")


class DoneRow(Shape):
    """An effect that a run had after a point: what a fork may do again."""

    run: UUID
    slot: str
    attempt: int
    tool: str = Field(description="`child:NAME` of a run that was started as a step.")
    at: str
    outcome: Literal["committed", "open", "undone"] = Field(
        description="open: nobody knows what came of it; undone: by the run itself."
    )
    external_id: str | None
    arguments: Any
    has_result: bool = Field(description="Whether what came of it can stand for the same call.")
    is_verified: bool = Field(description="false: a row alone tells of it, its event can't be read.")


class ForkPreview(Shape):
    """Where a run can be begun again, and, at a visit, what would happen again. Each of these effects stops the fork
    until a person has said what becomes of that call."""

    points: list[PointRow] = Field(description="The newest 500 visits.")
    visit: int | None
    state: Any = Field(description="With which the visit began; null without one.")
    effects: list[DoneRow]
    all_are_asked_about: bool = Field(
        description="Nobody can say that these are all: every call with an effect is asked about."
    )
    hidden: bool = Field(description="The caller has no right to read state and arguments.")


class VerdictBody(Strict):
    """What one effect counts as: happened (the same call is answered by what it gave), unknown (a person is asked at
    the call), did_not (it may be done)."""

    slot: Annotated[str, Field(max_length=200)]
    attempt: int = 0
    counts_as: Literal["happened", "unknown", "did_not"]
    run: Annotated[str, Field(max_length=36)] = Field(default="", description="Needed where several runs' are listed.")
    result: Any = Field(default=None, description="What it gave, where the record doesn't have that.")
    sender_is_gone: bool = Field(
        default=False, description="Attests that nothing runs any more of a worker that was given up without proof."
    )


class StartAgainBody(SteerBody):
    """Begin a new run from this one's input."""

    audit: Annotated[list[VerdictBody], Field(max_length=2000)] = []
    version: Annotated[str, Field(max_length=50)] | None = Field(
        default=None, description="Of the same agent; left out: the run's own."
    )
    input: Any = Field(default=None, description="Only where the recorded one can't be believed.")
    budget: Budget | None = None


class StartAgainPreview(Shape):
    """What is left of a run's record. Each effect has to be decided before a run is started from its input again."""

    has_ended: bool = Field(description="false: it is cancelled by that, with its effects left as they are.")
    input: Any
    input_is_sound: bool = Field(description="false: it has to be given.")
    effects: list[DoneRow]
    problems: list[str] = Field(description="What is wrong with its record, the first 50.")
    all_are_asked_about: bool = Field(
        description="Nobody can say that these are all: every further call with an effect is asked about."
    )
    hidden: bool = Field(description="The caller has no right to read input and arguments.")


def done_row(effect: Evidence, *, is_read: bool) -> DoneRow:
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
