"""API of runs: start, read, control and settle them; callbacks; agents; the fleet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ParseError
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.api.views import PAGE_BYTES, fitting
from ledger.errors import DurableAgentsError, IllegalTransition, NotFound
from ledger.models import Head
from ledger.web import strict_json
from ledger.web.api_base import (
    READ,
    ApiView,
    Changed,
    Query,
    StrictJSONParser,
    described,
    is_empty,
    is_matched,
    no_cursor,
    read_body,
)
from ledger.web.cursors import closed, numbered
from ledger.web.roles import AUDITOR, EVERY, INTEGRATOR, OPERATOR, roles
from ledger.web.seeing.payloads import must_read
from ledger.web.shapes import Shape
from runs import features
from runs.api.once import REPLAYED, answered_once
from runs.api.present import agent_row, load_run_row, log_row, run_rows
from runs.api.revisions import WAITS_FOR, is_current, revision_of
from runs.api.schemas import AgentPage, LogPage, MessagePage, ProcessPage, ProcessRow, RunPage, RunRow, SentRow
from runs.api.starting import begin
from runs.engine.agents import registry
from runs.engine.canonical import MAX_VALUE
from runs.engine.steps.telling import LEVELS
from runs.fleet import members
from runs.models import Run, State
from runs.queries.actions import Reader
from runs.queries.progress import last_lines
from runs.queries.run_facts import read_facts
from runs.queries.run_list import (
    AGES,
    COUNT_TO,
    TEXTS,
    TIMES,
    TRACE,
    WAITS,
    Filters,
    longest_waiting,
    stretch,
    total,
)
from runs.queries.why import Why, why
from runs.services import authority, callbacks, continuation, idempotency, lifecycle, questions, signals
from runs.services.bodies import AnswerBody, CancelBody, RunFilter, SignalBody, StartBody, SteerRunBody
from runs.services.budgets.starting import most_of
from runs.services.command import locked
from runs.services.fleet import requeue
from runs.services.forgeries import forgeries
from runs.services.injecting import ContextBody, GoOnBody, Look, go_on, look_first
from runs.services.priorities import PriorityBody, set_priority
from runs.services.undo import UNDO
from runs.story.conversation import transcript

# Limit of an output in a list of runs, in bytes of JSON.
LISTED_OUTPUT = 64 * 1024
MAX_WAIT_SECONDS = 60
_WAITING = (
    OpenApiParameter("wait", int, description=f"Seconds to wait for the next revision, up to {MAX_WAIT_SECONDS}."),
    OpenApiParameter(
        "after", str, description="Revision that you know; if the run has a different one, the response comes at once."
    ),
)
_STEERED = ("Idempotency-Key", "If-Match")
_CHOICES = {"wait": list(WAITS), "older": list(AGES)}
_SEARCHED: tuple[str | OpenApiParameter, ...] = (
    *(
        OpenApiParameter(
            name, datetime if name in TIMES else str, enum=_CHOICES.get(name), description=str(one.description)
        )
        for name, one in RunFilter.model_fields.items()
    ),
    OpenApiParameter(
        "sort",
        str,
        description="Attribute to order by: `amount` ascending, `-amount` descending; or `waiting_since` or "
        "`waiting_deadline`: runs with open waits, earliest first.",
    ),
    OpenApiParameter("total", bool, description=f"Count the matching runs too, up to {COUNT_TO}."),
    "fields",
    "cursor",
    "limit",
)
_NAMES = tuple(each if isinstance(each, str) else each.name for each in _SEARCHED)


class StartJSON(StrictJSONParser):
    """Parser for the body of a start request. The run's input may be as large as any value in a journal."""

    most_bytes = MAX_VALUE + strict_json.MAX_BYTES


class Runs(ApiView):
    """Runs, newest first."""

    parser_classes = (StartJSON,)
    roles = {**READ, "POST": (INTEGRATOR, OPERATOR)}

    @described("List runs", RunPage, query=_SEARCHED)
    def get(self, request: Request) -> Response:
        query = Query(request, *_NAMES)
        wanted = fields_in(query, RunRow)
        filters = _filters(query)
        answer = self._page(query, filters, wanted)
        if query.choice("total", ("true", "false")) == "true":
            answer.data["total"], answer.data["total_is_more"] = total(filters)
        return answer

    def _page(self, query: Query, filters: Filters, wanted: frozenset[str] | None) -> Response:
        if filters.by_attributes is None and filters.by_wait:
            waiting = longest_waiting(filters, limit=query.limit + 1, beyond=query.moment())
            rows = {
                row.id: row for row in run_rows([run for run, _ in waiting[: query.limit]], most_output=LISTED_OUTPUT)
            }
            return query.page(
                waiting, lambda one: {"cursor": closed(*one[1])}, lambda one: only(rows[one[0].id], wanted)
            )
        return _page(query, filters, wanted)

    @described("Start a run", RunRow, status=201, also=(200,), body=StartBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> HttpResponse:
        """Start a run. A repeated request with the same Idempotency-Key returns the first response."""
        key = idempotency.key_from(request.headers.get("Idempotency-Key"))
        body = read_body(request, StartBody)

        is_first = False

        def start() -> tuple[int, RunRow]:
            nonlocal is_first
            is_first = True
            return begin(body, by=self.by, most=most_of(request.auth), key=key)

        if key is None:
            with transaction.atomic():
                status, answer = start()
            return Response(answer, status=status, headers=_location(answer.id))
        principal = f"user:{request.user.pk}"
        status, text = idempotency.answer_once(principal, key, request.data, start)
        headers = _location(json.loads(text)["id"]) | ({} if is_first else REPLAYED)
        return HttpResponse(text, status=status, headers=headers, content_type="application/json")


def _filters(query: Query) -> Filters:
    """Return the filters of the query. Raises ParseError."""
    given: dict[str, Any] = {name: query.text(name) or "" for name in TEXTS}
    given |= {name: query.time(name) for name in TIMES} | {"q": given["q"].strip()}
    filters = Filters(**given, sort=query.text("sort") or "")
    query.choices("state", State.values)
    for name, allowed in _CHOICES.items():
        query.choice(name, allowed)
    if filters.business_key and not filters.agent:
        raise ParseError("Query parameter 'business_key' needs 'agent', since keys are unique within an agent.")
    if filters.trace_id and not TRACE.fullmatch(filters.trace_id):
        raise ParseError("Query parameter 'trace_id' must be 32 lowercase hex digits.")
    return replace(filters, parent=str(query.uuid("parent") or ""))


def _page(query: Query, filters: Filters, wanted: frozenset[str] | None) -> Response:
    """Return a page of runs. A page of a search by attributes may be short even though more runs follow."""
    if (some := stretch(filters, limit=query.limit, cursor=query.text("cursor") or "")) is None:
        raise no_cursor("cursor")
    rows = [only(row, wanted) for row in run_rows(some.runs, most_output=LISTED_OUTPUT, wanted=wanted)]
    return query.stretch(rows, {"cursor": some.following} if some.following else None)


class OneRun(ApiView):
    """The current state of a run."""

    roles = READ

    @described("Get a run", RunRow, query=(*_WAITING, "fields"))
    def get(self, request: Request, run_id: UUID) -> Response:
        """Get the current state of a run.

        With `wait`, the response is sent at the run's next revision or its end, or after that many seconds. Repeat the
        request with `after` until `ended_at` is set.
        """
        query = Query(request, "wait", "after", "fields")
        wait = query.integer("wait", default=0, lowest=0, highest=MAX_WAIT_SECONDS)
        after, wanted = query.text("after"), fields_in(query, RunRow)
        row = load_run_row(run_id, wanted)
        headers = {"ETag": f'"{row.revision}"'}
        if wait and row.ended_at is None and after in (None, row.revision):
            headers[WAITS_FOR] = row.revision  # see durableagents/server/streams.py
        return Response(only(row, wanted), headers=headers)


class Latest(ApiView):
    """The newest run in a chain of continuations, or the run itself if it was not continued."""

    roles = READ

    @described("Get a run's newest continuation", RunRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        return Response(load_run_row(continuation.newest(run_id).pk))


class Children(ApiView):
    """Runs that the run started, newest first."""

    roles = READ

    @described("List child runs", RunPage, query=("cursor", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "cursor")
        lifecycle.find(run_id)
        return _page(query, Filters(parent=str(run_id)), None)


class Log(ApiView):
    """Log lines written by the run's nodes, newest first."""

    roles = READ

    @described("List log lines", LogPage, query=("level", "before", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "level", "before")
        before = query.integer("before", default=2**63 - 1, lowest=1, highest=2**63 - 1)
        level = query.choice("level", LEVELS) or ""
        lifecycle.find(run_id)
        rows = last_lines(run_id, query.limit + 1, before=before, level=level)
        return query.page(rows, lambda row: {"before": str(row.id)}, log_row)


class Transcript(ApiView):
    """Model requests and answers, tool calls and results, in order."""

    roles = READ

    @described("List a run's conversation", MessagePage, query=("after", "cursor", "limit"))
    def get(self, request: Request, run_id: UUID) -> Response:
        query = Query(request, "after", "cursor")
        after = query.integer("after", default=0, lowest=0, highest=2**31)
        since = query.place()
        lifecycle.find(run_id)
        must_read(run_id)
        rows = transcript(
            run_id, most=query.limit + 1, most_bytes=PAGE_BYTES, since=since or (0, 0), skip=0 if since else after
        )
        query.limit = min(query.limit, fitting(row.size for row in rows))
        return query.page(rows, lambda row: {"cursor": numbered(*row.following)}, lambda row: row.shown)


class Steer(ApiView):
    """Act on a run. Operators may do so and, for some actions, the person who started the run and the approvers of
    queues where it waits or has waited."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {"POST": authority.STOPPERS}
    action: ClassVar[str] = ""

    @described({"pause": "Pause a run", "requeue": "Requeue a run"}, RunRow, body=SteerRunBody, headers=_STEERED)
    def post(self, request: Request, run_id: UUID) -> HttpResponse:
        return self._done(request, run_id, SteerRunBody)

    def _done(self, request: Request, run_id: UUID, shape: type[SteerRunBody]) -> HttpResponse:
        role = self._role_at(run_id)  # before the body is parsed
        body = read_body(request, shape)
        more = {"effects": body.effects} if isinstance(body, CancelBody) else {}
        handed = body.context if isinstance(body, GoOnBody) else None
        seen = None if handed is None else self._seen_before(request, run_id, body, handed)

        def act(on: UUID) -> UUID:
            by = replace(self.by, role=role if on == run_id else self._role_at(on))
            if handed is not None:
                must_read(on)
                if isinstance(seen, DurableAgentsError):
                    raise seen
                return go_on(self.action, on, handed, by=by, justification=body.justification, seen_before=seen).id
            steer = partial(_ACTS[self.action], on, by=by, justification=body.justification, **more)
            return self._unless_done(on, steer, is_undo=more.get("effects") == UNDO)

        def checked(on: UUID) -> UUID:
            token = body.resume_token if isinstance(body, GoOnBody) else None
            if token is None and "If-Match" not in request.headers:
                return act(on)
            with transaction.atomic():
                head, run = locked(on, under=self.by)
                if not is_matched(request, f'"{revision_of(run.updated_at)}"'):
                    raise Changed
                if token is not None and not is_current(token, on, head.epoch):
                    raise Changed
                return act(on)

        def done() -> tuple[int, RunRow]:
            return 200, load_run_row(continuation.to_newest(run_id, checked) if body.newest else checked(run_id))

        return answered_once(request, {"run": str(run_id), "act": self.action, "body": request.data}, done)

    def _unless_done(self, run_id: UUID, act: Callable[[], Run], *, is_undo: bool) -> UUID:
        """Act, unless the run is already in the state that a pause or cancel leads to. Raises the errors of `act`."""
        try:
            return act().id
        except IllegalTransition:
            state, request_flag = _REPEATS.get(self.action, ("", ""))
            head = Head.objects.filter(run_id=run_id).first()
            run = lifecycle.find(run_id)
            if request_flag and (
                run.is_undoing if is_undo else run.state == state or getattr(head, request_flag, False)
            ):
                return run_id
            raise

    def _seen_before(
        self, request: Request, run_id: UUID, body: SteerRunBody, handed: ContextBody
    ) -> Look | DurableAgentsError | None:
        """Return the run's state for a patch or message, or the error; None if the response is already stored.
        Call this before the transaction, because it may take longer than a transaction may be idle."""
        key = idempotency.key_from(request.headers.get("Idempotency-Key"))
        if key is not None and idempotency.kept_answer(f"user:{request.user.pk}", key) is not None:
            return None

        def look(on: UUID) -> Look:
            must_read(on)
            by = replace(self.by, role=self._role_at(on))
            return look_first(self.action, on, handed, by=by, justification=body.justification)

        try:
            return continuation.look_at_newest(run_id, look) if body.newest else look(run_id)
        except DurableAgentsError as error:
            return error

    def _role_at(self, run_id: UUID) -> str:
        """Return the role under which the person may act on this run. Raises Forbidden."""
        user = self.request.user
        return authority.role_to(self.action, lifecycle.find(run_id), held=roles(user), person=user.pk)


class GoOn(Steer):
    """Resume a paused run, or retry a failed one. An operator may add a patch or a message."""

    @described({"resume": "Resume a run", "retry": "Retry a run"}, RunRow, body=GoOnBody, headers=_STEERED)
    def post(self, request: Request, run_id: UUID) -> HttpResponse:
        return self._done(request, run_id, GoOnBody)


class Cancel(Steer):
    """Cancel a run. If the run has effects that can be undone, the body must tell whether to undo them."""

    @described("Cancel a run", RunRow, body=CancelBody, headers=_STEERED)
    def post(self, request: Request, run_id: UUID) -> HttpResponse:
        return self._done(request, run_id, CancelBody)


class Retry(GoOn):
    """Retry a failed run. A retry may send calls again, so only operators may do it."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {"POST": (OPERATOR,)}


# The state that the act leads to, or the pending request to the worker, found by a repeated request.
_REPEATS = {
    "pause": (State.PAUSED, "is_pause_requested"),
    "cancel": (State.CANCELLED, "is_cancel_requested"),
}
_ACTS: Mapping[str, Callable[..., Run]] = {
    "pause": lifecycle.pause,
    "resume": lifecycle.resume,
    "cancel": lifecycle.cancel,
    "retry": lifecycle.retry,
    "requeue": requeue,
}


class RunPriority(ApiView):
    """Set a run's priority."""

    roles = {"POST": (OPERATOR,)}

    @described("Set a run's priority", RunRow, body=PriorityBody)
    def post(self, request: Request, run_id: UUID) -> Response:
        lifecycle.find(run_id)
        body = read_body(request, PriorityBody)
        set_priority(run_id, body.priority, by=self.by, justification=body.justification)
        return Response(load_run_row(run_id))


class Requeue(Steer):
    """Take a run from its worker, so that another worker can claim it. Operators only."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {"POST": (OPERATOR,)}


class Signals(ApiView):
    """Send a signal that the run waits for, or may wait for later."""

    roles = {"POST": (INTEGRATOR, OPERATOR)}

    @described(
        "Send a signal to a run", SentRow, status=202, also=(200,), body=SignalBody, headers=("Idempotency-Key",)
    )
    def post(self, request: Request, run_id: UUID, name: str) -> HttpResponse:
        lifecycle.find(run_id)
        body = read_body(request, SignalBody)

        def send() -> tuple[int, SentRow]:
            sent = signals.signal(run_id, name, body.payload, by=self.by, sender_id=body.id)
            return 202 if sent.is_new else 200, SentRow.of(sent, name=name)

        return answered_once(request, {"run": str(run_id), "signal": name, "body": request.data}, send)


class Answers(ApiView):
    """Answer a question of a run.

    The permission depends on the question: operators, and the role to which it is addressed, may answer.
    """

    roles = {"POST": EVERY}

    @described("Answer a run's question", RunRow, body=AnswerBody)
    def post(self, request: Request, run_id: UUID, wait_id: UUID) -> Response:
        role = questions.role_to_answer(questions.question(run_id, wait_id), roles(request.user))
        body = read_body(request, AnswerBody)
        questions.answer(run_id, wait_id, body.answer, by=replace(self.by, role=role), justification=body.justification)
        return Response(load_run_row(run_id))


class AnyTypeJSON(StrictJSONParser):
    """Parse any body as JSON: other systems may omit the Content-Type."""

    media_type = "*/*"
    has_to_be_exact = False


class Callback(ApiView):
    """Receive the result of a call that the upstream system accepted earlier.

    The token in the URL authorizes it.
    """

    authentication_classes = ()
    permission_classes = (AllowAny,)
    parser_classes = (AnyTypeJSON,)

    @described("Deliver a call's result", dict, body=dict, is_repeatable=False)
    def post(self, request: Request, token: str) -> Response:
        # The token is looked up before the body is read, because reading the body costs far more.
        if not callbacks.is_awaited(token):
            forgeries.note(request.META.get("REMOTE_ADDR", ""))
            raise NotFound("callback for the token", token[:8] + "…")
        if is_empty(request):
            raise ParseError("The body is empty; send JSON.")
        return Response(callbacks.receive_callback(token, request.data))


class Agents(ApiView):
    """Agents that can be started, with schemas and samples. The whole list is on one page unless you set a limit."""

    roles = READ

    @described("List agents", AgentPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**31)
        rows = registry.agents()[after : after + query.limit + 1]
        return query.page(
            rows,
            lambda row: {"after": str(after + query.limit)},
            partial(agent_row, certificate_of=features.certificate_reader()),
        )


class Fleet(ApiView):
    """All live processes."""

    roles = {"GET": (OPERATOR, AUDITOR)}

    @described("List live processes", ProcessPage, query=("after", "limit"))
    def get(self, request: Request) -> Response:
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**31)
        rows = members.alive()[after : after + query.limit + 1]
        return query.page(rows, lambda row: {"after": str(after + query.limit)}, ProcessRow.of)


def _place(run: Run) -> dict[str, str]:
    return {"cursor": closed(run.created_at, run.id)}


def _location(run_id: Any) -> dict[str, str]:
    return {"Location": f"/api/v1/runs/{run_id}"}


def fields_in(query: Query, shape: type[Shape]) -> frozenset[str] | None:
    """Return the named fields; None for all. Raises ParseError for an unknown one."""
    text = query.text("fields")
    if text is None:
        return None
    names = frozenset(text.split(","))
    if unknown := sorted(names - shape.model_fields.keys()):
        known = ", ".join(sorted(shape.model_fields))
        raise ParseError(f"Query parameter 'fields' has the unknown field {unknown[0][:60]!r}. Known: {known}.")
    return names


def only(row: Shape, names: frozenset[str] | None) -> Any:
    """Return a row with only these fields."""
    return row if names is None else {name: value for name, value in row.shown().items() if name in names}


class RunWhy(ApiView):
    """The reasons why a run does not progress, who must act, and which actions the caller may take."""

    roles = READ

    @described("Explain a run's status", Why)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        return Response(why(read_facts(run_id), Reader(self.by, roles(request.user))))
