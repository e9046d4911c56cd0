"""Fork runs, and start them again from their input."""

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

from durableagents.contrib.forks.forking import ForkRequest, fork, prepare
from durableagents.contrib.forks.points import visits_of
from durableagents.contrib.forks.starting_again import (
    NOT_GIVEN,
    StartAgainRequest,
    Verdict,
    read_remains,
    start_again,
)
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.bodies import Strict
from ledger.web.fields import Attempt, Slot
from ledger.web.roles import OPERATOR, roles
from ledger.web.seeing.viewers import reads
from ledger.web.shapes import Shape
from runs.api.once import answered_once
from runs.api.present import load_run_row
from runs.api.schemas import RunRow
from runs.engine.budget import Budget
from runs.engine.forks import Evidence
from runs.models import ENDED
from runs.services import authority, lifecycle
from runs.services.bodies import SteerBody
from runs.services.budgets.starting import most_of


class ForkBody(SteerBody):
    """Start a new run from the beginning of one visit of this run."""

    visit: Annotated[int, Field(description="A visit listed by GET …/fork; 1 is the first.")]
    version: Annotated[str, Field(max_length=50)] | None = Field(
        default=None, description="A version of the same agent; default: the version of the run."
    )
    if_effects: int | None = Field(
        default=None, description="Number of effects after that point that you have seen. If it has changed: 409."
    )
    budget: Budget | None = Field(default=None, description="Caps of the new run, as when starting one.")


class PointRow(Shape):
    """The start of a visit."""

    visit: int = Field(description="Number of the visit, from 1.")
    node: str = Field(description="Node that was entered.")
    seq: int = Field(description="Event with which it started.")
    at: datetime = Field(description="Time when it was entered.")
    problem: str = Field(description="Why the run can't be forked here; empty if it can.")


class DoneRow(Shape):
    """An effect that the run had after a point, and that a fork may repeat."""

    run: UUID = Field(description="Run that had the effect.")
    slot: Slot
    attempt: Attempt
    tool: str = Field(description="`child:NAME` for a run started as a step.")
    at: str = Field(description="Time of the call.")
    outcome: Literal["committed", "open", "undone"] = Field(
        description="open: the outcome is unknown. undone: the run undid it itself."
    )
    external_id: str | None = Field(description="Id that the upstream system returned; null if none.")
    arguments: Any = Field(description="Arguments of the call; null if the caller may not read them.")
    has_result: bool = Field(description="Whether its recorded result can be reused for the same call.")
    is_verified: bool = Field(description="False if only a row shows the effect, because its event can't be read.")


class ForkPreview(Shape):
    """Points where a run can be forked and, for one visit, the effects that a fork might repeat. The fork needs a
    verdict on each of them."""

    points: list[PointRow] = Field(description="The newest 500 visits.")
    visit: int | None = Field(description="The requested visit; null if none was named.")
    state: Any = Field(description="State at the start of the visit; null if no visit was named.")
    effects: list[DoneRow] = Field(description="Effects after the start of the visit.")
    all_are_asked_about: bool = Field(
        description="The list of effects may be incomplete, so the fork asks before every call with an effect."
    )
    hidden: bool = Field(description="True if the caller may not read state and arguments.")


class VerdictBody(Strict):
    """A verdict on one effect. happened: its result is reused for the same call. unknown: a person is asked at the
    call. did_not: the call may be made."""

    slot: Annotated[str, Field(max_length=200)] = Field(description="Step of the effect, as listed.")
    attempt: int = Field(default=0, description="Attempt of the effect, as listed: 0 for the first.")
    counts_as: Literal["happened", "unknown", "did_not"] = Field(description="Verdict on the effect.")
    run: Annotated[str, Field(max_length=36)] = Field(
        default="", description="Required if effects of several runs are listed."
    )
    result: Any = Field(default=None, description="The effect's result, if it isn't recorded.")
    sender_is_gone: bool = Field(
        default=False,
        description="Confirms that the worker, which was given up without proof that it ended, no longer runs.",
    )


class StartAgainBody(SteerBody):
    """Start a new run from this one's input."""

    audit: Annotated[list[VerdictBody], Field(max_length=2000)] = Field(
        default=[], description="One verdict for each listed effect."
    )
    version: Annotated[str, Field(max_length=50)] | None = Field(
        default=None, description="A version of the same agent; default: the version of the run."
    )
    input: Any = Field(default=None, description="Only if the recorded input can't be trusted.")
    budget: Budget | None = Field(default=None, description="Caps of the new run, as when starting one.")


class StartAgainPreview(Shape):
    """A run's effects. Each effect needs a verdict before the run can be started again from its input."""

    has_ended: bool = Field(description="False: starting again cancels the run but does not undo its effects.")
    input: Any = Field(description="Recorded input; null if the caller may not read it.")
    input_is_sound: bool = Field(description="False: the request must contain the input.")
    effects: list[DoneRow] = Field(description="Effects that need a verdict.")
    problems: list[str] = Field(description="Problems found in the run's record; at most 50.")
    all_are_asked_about: bool = Field(
        description="The list of effects may be incomplete, so the new run asks before every further call "
        "with an effect."
    )
    hidden: bool = Field(description="True if the caller may not read input and arguments.")


def done_row(effect: Evidence, *, is_read: bool) -> DoneRow:
    return DoneRow.of(effect, run=UUID(effect.run), **({} if is_read else {"arguments": None}))


class RunFork(ApiView):
    """Visits from which a new run can start, and the effects that it may repeat."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {**READ, "POST": (OPERATOR,)}

    @described("Preview a fork", ForkPreview, query=("visit", "version"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "visit", "version")
        visit = query.integer("visit", default=0, lowest=0, highest=2**31 - 1)
        run = lifecycle.find(run_id)
        is_read = reads(run_id)
        fields: dict[str, Any] = {"visit": None, "state": None, "effects": [], "all_are_asked_about": False}
        if query.text("visit") is not None:
            ready = prepare(run, ForkRequest(visit, version=query.text("version") or ""))
            fields = {
                "visit": visit,
                "state": ready.state if is_read else None,
                "effects": [done_row(x, is_read=is_read) for x in ready.point.effects],
                "all_are_asked_about": ready.point.fences_all,
            }
        points = [PointRow.of(x) for x in visits_of(run)]
        return Response(ForkPreview.of(None, points=points, hidden=not is_read, **fields))

    @described("Fork a run", RunRow, status=201, body=ForkBody, headers=("Idempotency-Key",))
    def post(self, request: Request, run_id: UUID) -> HttpResponse:
        """Start a new run from a visit of this one. A fork may repeat effects, so only operators may create one."""
        run, user = lifecycle.find(run_id), request.user
        authority.role_to("fork", run, held=roles(user), person=user.pk)  # checked before the body is read
        body = read_body(request, ForkBody)
        wanted = ForkRequest(
            body.visit,
            version=body.version or "",
            seen=body.if_effects,
            budget=body.budget,
        )

        def begin() -> tuple[int, RunRow]:
            with transaction.atomic():
                made = fork(run_id, wanted, by=self.by, justification=body.justification, most=most_of(request.auth))
                return 201, load_run_row(made.pk)

        return answered_once(request, {"run": str(run_id), "fork": request.data}, begin)


class StartAgain(ApiView):
    """Effects of a run that need a verdict before it can be started again."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {**READ, "POST": (OPERATOR,)}

    @described("Preview starting a run again", StartAgainPreview)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        run = lifecycle.find(run_id)
        found, is_read = read_remains(run), reads(run_id)
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
        """Start a new run from this one's input, with a verdict on each of its effects."""
        run, user = lifecycle.find(run_id), request.user
        authority.role_to("start_again", run, held=roles(user), person=user.pk)  # checked before the body is read
        body = read_body(request, StartAgainBody)
        wanted = StartAgainRequest(
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
                return 201, load_run_row(made.pk)

        return answered_once(request, {"run": str(run_id), "start_again": request.data}, begin)


def _verdict(body: VerdictBody) -> Verdict:
    result = body.result if "result" in body.model_fields_set else NOT_GIVEN
    return Verdict(
        body.slot, body.attempt, body.counts_as, run=body.run, result=result, sender_is_gone=body.sender_is_gone
    )
