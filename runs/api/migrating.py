"""Preview a move of runs to another version of their agent, and move them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from ledger.web.api_base import ApiView, described, read_body
from ledger.web.fields import Rows, RunId
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Shape
from runs.api.once import REPLAYED
from runs.engine.migrating import Moving, refused
from runs.queries.payloads import moved
from runs.services import idempotency
from runs.services.migrating import acts, looking
from runs.services.migrating.asked import LookBody, MigrateBody, chosen, moving_of
from runs.services.migrating.outcomes import Meant, Outcome, each


class MovedRow(Shape):
    """One run and the result of its migration, or the expected result."""

    run: RunId
    how: Literal["replayed", "reentered", "unbegun", "refused"] = Field(
        description="replayed: continues within its visit. reentered: enters its node again from the top. "
        "unbegun: had not entered a node. refused: not migrated."
    )
    is_moved: bool = Field(description="Whether it was, or would be, migrated.")
    code: str = Field(description="Stable code of a refusal; empty: none.")
    why: str = Field(description="Why it is refused, or why it can't continue within its visit.")
    node: str = Field(description="Current node; empty: it has not entered one.")
    to_node: str = Field(description="Node where it continues in the new version; empty: none.")
    answered: list[str] = Field(description="Slots of calls that are answered from the record.")
    anew: list[str] = Field(description="Calls that are made afterwards or repeated.")
    withdrawn: list[str] = Field(description="Waits that end, so that people are no longer asked.")
    is_retried: bool = Field(description="The run had failed and is retried with the migration.")


class MovedRows(Shape):
    """The requested runs, in order."""

    results: Rows[MovedRow]


class Look(ApiView):
    """Preview the migration of runs. Nothing is changed."""

    roles = {"POST": (OPERATOR, AUDITOR)}

    @described("Preview a migration", MovedRows, body=LookBody)
    def post(self, request: Request, name: str) -> Response:
        return _answer(acts.preview(name, read_body(request, LookBody)))


class Migrations(ApiView):
    """Migrate runs, each in its own transaction. A repetition with the same `Idempotency-Key` concerns the same runs:
    it migrates those that were refused or not reached, and returns the recorded results of the others."""

    roles = {"POST": (OPERATOR,)}

    @described("Migrate runs to another version", MovedRows, body=MigrateBody, headers=("Idempotency-Key",))
    def post(self, request: Request, name: str) -> Response:
        body = read_body(request, MigrateBody)
        key = idempotency.key_from(request.headers.get("Idempotency-Key"))
        if key is None:
            return _answer(acts.migrate(name, body, by=self.by))
        why, principal = acts.may_migrate(self.by, body.justification), f"migrate:{request.user.pk}"
        asked = {"agent": name, "asked": request.data}
        _, text = idempotency.answer_once(principal, key, asked, lambda: (200, _chosen(name, body)))
        mine = hashlib.sha256(key.encode()).hexdigest()  # one of any length, with a run's id after it
        keys = {UUID(run_id): f"{mine}-{run_id}" for run_id in json.loads(text)}
        kept = idempotency.kept_answers(principal, list(keys.values()))
        told = {run_id: _kept(run_id, kept[named]) for run_id, named in keys.items() if named in kept}
        if left := {run_id: named for run_id, named in keys.items() if run_id not in told}:
            told |= {found.run: found for found in self._rest(name, body, left, principal, why, is_repeat=bool(told))}
        return _answer([told[run_id] for run_id in keys], {} if left or not keys else REPLAYED)

    def _rest(
        self, name: str, body: MigrateBody, left: dict[UUID, str], principal: str, why: str, *, is_repeat: bool
    ) -> list[Outcome]:
        """Migrate the runs without a kept answer and return their results. A repeat returns kept answers even if the
        rest can't be migrated any more."""
        try:
            moving = moving_of(name, body)
        except (InvalidInput, NotFound) as error:
            if not is_repeat:
                raise
            return [Outcome.of(run_id, refused(error.code, error.detail)) for run_id in left]
        meant = Meant()

        def one(run_id: UUID) -> Outcome:
            return self._one(left[run_id], principal, run_id, moving, why, meant)

        return each(list(left), one, moving, by=self.by, meant=meant)

    def _one(self, key: str, principal: str, run_id: UUID, moving: Moving, why: str, meant: Meant) -> Outcome:
        stayed: Outcome | None = None
        for _ in range(acts.LOOKS):
            seen = looking.look(run_id, moving)  # before the answer's transaction: it takes long

            def act(seen: looking.Look = seen) -> tuple[int, Any]:
                found = acts.migrate_one(run_id, moving, by=self.by, justification=why, meant=meant, seen_before=seen)
                if not found.is_moved:
                    raise _Stays(found)
                return 200, _row(found)

            try:
                _, text = idempotency.answer_once(principal, key, str(run_id), act)
                return _kept(run_id, text)
            except _Stays as stays:
                stayed = stays.found
            if stayed.code != acts.MOVING:
                break
        assert stayed is not None
        return stayed


def _chosen(name: str, body: MigrateBody) -> list[str]:
    return [str(run_id) for run_id in chosen(moving_of(name, body).of, body)]


def _kept(run_id: UUID, text: bytes) -> Outcome:
    return Outcome(**(json.loads(text) | {"run": run_id}))


class _Stays(DurableAgentsError):
    """The run is not moved. The answer is not kept, because a repeat may move it."""

    def __init__(self, found: Outcome) -> None:
        super().__init__(found.why)
        self.found = found


def _answer(found: list[Outcome], headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    return Response(MovedRows.of(None, results=[_row(moved(each)) for each in found]), headers=dict(headers))


def _row(found: Outcome) -> MovedRow:
    return MovedRow.of(found)
