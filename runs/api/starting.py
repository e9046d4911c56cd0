"""API for starting runs: one, or many at once."""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.actors import Actor
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web.api_base import ApiView, described, read_body
from ledger.web.bodies import fit
from ledger.web.problems import document
from ledger.web.roles import INTEGRATOR, OPERATOR
from runs.api.once import REPLAYED
from runs.api.present import accepted_row, load_run_row
from runs.api.schemas import BulkAnswer, BulkItem, RunRow
from runs.engine.budget import Budget
from runs.services import idempotency, lifecycle
from runs.services.bodies import BulkBody, StartBody
from runs.services.budgets.starting import most_of
from runs.services.priorities import start_with
from runs.services.starts import keys


def begin(body: StartBody, *, by: Actor, most: Budget | None, key: str | None = None) -> tuple[int, RunRow]:
    """Start a run as a body requests, in the caller's transaction.
    Returns the status and the run for the response to the request, whose idempotency key is `key`. Raises what
    `keys.start` raises."""
    wanted = keys.Wanted.of(body, key or "")
    if wanted.is_plain and wanted.deliver is None:
        accepted = lifecycle.accept(
            body.agent,
            body.input,
            by=by,
            tags=body.tags,
            budget=body.budget,
            most=most,
            attributes=body.attributes,
            request_key=wanted.request_key,
        )
        start_with(accepted.run, body.priority, by=by)
        return 201, accepted_row(accepted)
    begun = keys.start(wanted, by=by, most=most)
    if begun.is_new:
        start_with(begun.run, body.priority, by=by)
    return 201 if begun.is_new else 200, load_run_row(begun.run.id)


class BulkStart(ApiView):
    """Start up to 200 runs.

    Each start is a transaction of its own. Repeating the request with the same `Idempotency-Key` retries the starts
    that failed, and returns the recorded results of the others.
    """

    roles = {"POST": (INTEGRATOR, OPERATOR)}

    @described("Start many runs", BulkAnswer, body=BulkBody, headers=("Idempotency-Key",))
    def post(self, request: Request) -> Response:
        key = idempotency.key_from(request.headers.get("Idempotency-Key"))
        body = read_body(request, BulkBody)
        if key is None:
            raise ParseError(
                "Starting many runs requires an Idempotency-Key, so that a repeated request starts no run twice."
            )
        most, principal = most_of(request.auth), f"bulk:{request.user.pk}"
        done: list[bool] = []
        results = [
            self._one(f"{key}-{place}", principal, question, most=most, done=done)
            for place, question in enumerate(body.runs)
        ]
        # A repeated request tries a refused start again.
        is_repeat = not any(done) and all(item.problem is None for item in results)
        return Response(BulkAnswer.of(None, results=results), headers=REPLAYED if is_repeat and results else None)

    def _one(self, key: str, principal: str, start_body: Any, *, most: Budget | None, done: list[bool]) -> BulkItem:
        try:
            if not isinstance(start_body, dict):
                raise InvalidInput("A start must be a JSON object.", errors=[_NO_OBJECT])
            body = fit(StartBody, start_body)
            with transaction.atomic():

                def act() -> tuple[int, RunRow]:
                    done.append(True)
                    return begin(body, by=self.by, most=most, key=key)

                status, answer = idempotency.answer_once(principal, key, start_body, act)
        except DurableAgentsError as error:
            problem = document(error.status, error.code, error.title, error.detail, **error.extra)
            return BulkItem.of(None, status=error.status, run=None, problem=problem)
        return BulkItem.of(None, status=status, run=json.loads(answer), problem=None)


_NO_OBJECT = {"field": "", "problem": "is not an object", "fix": "send a JSON object for each start"}
