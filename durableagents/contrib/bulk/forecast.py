"""Forecast an operation on many runs from their rows and the services' rules, without locks.

Results that depend on a run's journal or on external calls are only known when the operation is carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection

from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, NotFound
from ledger.models import Event, Head
from runs import seen
from runs.engine.budget import Budget
from runs.models import Run, State, Wait
from runs.services import authority, related_runs, retrying
from runs.services.allowed import ALONE, FAILS_ANYWAY, IN_POOL, not_alike, stand_of, why_not
from runs.services.budgets import raising
from runs.services.command import holders, refusal
from runs.services.fleet import is_in_pool
from runs.services.priorities import RunHasEnded

CHUNK_SIZE = 500
MAX_EXAMPLES = 20  # number of examples for each reason
_KINDS = """
    SELECT run_id, array_agg(kind) FROM runs_wait WHERE run_id = ANY(%s) AND resolved_at IS NULL GROUP BY run_id"""


@dataclass(frozen=True, slots=True)
class Request:
    """A requested action with its parameters, requester and time. Caches agents' price problems."""

    action: str
    said: Mapping[str, Any]
    by: Actor
    held: frozenset[str]
    now: datetime
    unpriced: dict[str, DurableAgentsError | None] = field(default_factory=dict)


def forecast(
    action: str, fields: Mapping[str, Any], ids: Sequence[UUID], *, by: Actor, held: frozenset[str]
) -> dict[str, Any]:
    """Return the forecast as JSON.

    It contains the number of runs per state, the number of runs on which the action `may` succeed, and refusals by code
    and text with examples. `undoable` is the number of runs with effects that a cancellation could undo.
    """
    request = Request(action, fields, by, held, database_now())
    states: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    named: dict[tuple[str, str], list[str]] = {}
    undoable = 0
    for chunk in _chunks(ids):
        for run_id, state, why in _judged(request, chunk):
            states[state] += 1
            if why is not None:
                refused[why] += 1
                named.setdefault(why, []).append(str(run_id))
        if action == "cancel":
            undoable += _undoable(chunk)
    return {
        "states": dict(states),
        "may": len(ids) - sum(refused.values()),
        "undoable": undoable,
        "refused": [
            {"code": code, "why": why, "runs": number, "some": named[code, why][:MAX_EXAMPLES]}
            for (code, why), number in refused.most_common()
        ],
    }


def _undoable(chunk: list[UUID]) -> int:
    return Event.objects.filter(run_id__in=chunk, kind=e.UndoRegistered.KIND).values("run_id").distinct().count()


def _chunks(ids: Iterable[UUID]) -> Iterable[list[UUID]]:
    some = iter(ids)
    while chunk := list(islice(some, CHUNK_SIZE)):
        yield chunk


def _judged(request: Request, chunk: list[UUID]) -> Iterable[tuple[UUID, str, tuple[str, str] | None]]:
    """Yield each run with its state and the code and text of the refusal; None if the action would succeed."""
    rows = _Rows(request, chunk)
    for run_id in chunk:
        run, head = rows.runs.get(run_id), rows.heads.get(run_id)
        if run is None or head is None:
            yield run_id, "unknown", (NotFound.code, "There is no such run, or you don't have access to it.")
            continue
        try:
            rows.check_allowed(run, head)
        except DurableAgentsError as no:
            yield run_id, str(run.state), (no.code, no.detail)
        else:
            yield run_id, str(run.state), None


class _Rows:
    """The rows needed to judge a chunk of runs, read in one go."""

    def __init__(self, request: Request, chunk: list[UUID]) -> None:
        self.request = request
        self.runs: dict[UUID, Run] = Run.objects.in_bulk(list(seen.among(chunk)))
        ids = list(self.runs)
        self.heads: dict[UUID, Head] = Head.objects.in_bulk(ids)
        with connection.cursor() as cursor:
            cursor.execute(_KINDS, [ids])
            self.kinds: dict[UUID, list[str]] = dict(cursor.fetchall())
        self.standings = authority.standings(self.runs.values())
        with_budget_wait = [id for id, kinds in self.kinds.items() if Wait.Kind.BUDGET in kinds]
        self.holders = holders(with_budget_wait) if with_budget_wait and request.action in ("pause", "resume") else {}
        self.questions: dict[UUID, list[Wait]] = {}
        if request.action == "budget":
            for wait in Wait.objects.filter(
                run_id__in=with_budget_wait, kind=Wait.Kind.BUDGET, resolved_at__isnull=True
            ):
                self.questions.setdefault(wait.run_id, []).append(wait)
        self.crowded = related_runs.crowded(ids) if request.action in ALONE else frozenset()
        self.lives = retrying.key_lives(self.runs.values()) if request.action == "retry" else frozenset()

    def check_allowed(self, run: Run, head: Head) -> None:
        """Check the same rules as the action, in the same order. Raises the DurableAgentsError that it would raise."""
        action, held, by = self.request.action, self.request.held, self.request.by
        authority, kinds = self.standings[run.pk], self.kinds.get(run.pk, [])
        if authority.role(action, held, by.person) is None:
            raise authority.refusal(action, held)
        condition = stand_of(
            run,
            pause_asked=head.is_pause_requested,
            cancel_asked=head.is_cancel_requested,
            kinds=kinds,
            is_held=run.pk in self.holders,
        )
        hint = self._not_alike(run, condition.doubts) if action == "reconcile" else None
        hint = why_not(action, condition) if hint is None else hint
        if hint is not None:
            raise RunHasEnded(hint) if action == "priority" else refusal(action, run, hint)
        self._check_further(run, head)

    def _not_alike(self, run: Run, unknown_outcomes: int) -> str | None:
        fails = FAILS_ANYWAY if run.is_undoing and self.request.said.get("verdict") == "fail" else None
        return not_alike(unknown_outcomes) or fails

    def _check_further(self, run: Run, head: Head) -> None:
        """Check rules that concern more than the run's state. Raises DurableAgentsError."""
        action = self.request.action
        if action == "budget":
            self._check_budget(run, head)
        elif action == "requeue" and is_in_pool(run, now=self.request.now):
            raise refusal(action, run, IN_POOL)
        elif run.pk in self.crowded and (other := related_runs.find_competing_run(run)) is not None:
            raise refusal(action, run, related_runs.why_not(other))
        elif run.pk in self.lives and run.state == State.FAILED:
            raise refusal(action, run, retrying.KEY_LIVES.format(run.business_key))

    def _check_budget(self, run: Run, head: Head) -> None:
        wanted = Budget.model_validate(self.request.said["budget"])
        higher = raising.to_raise(run, head, self.questions.get(run.pk, []), wanted)
        if higher.usd is not None and (no := self._price_problem(run, higher)) is not None:
            raise no
        raising.check_time(run, higher, now=self.request.now)

    def _price_problem(self, run: Run, higher: Budget) -> DurableAgentsError | None:
        """Return the problem with the prices of the agent's models; checked once per agent."""
        known = self.request.unpriced
        if run.graph_id not in known:
            known[run.graph_id] = None
            try:
                raising.check_price(run, higher)
            except DurableAgentsError as no:
                known[run.graph_id] = no
        return known[run.graph_id]
