"""Migrates runs to another version, each in its own transaction with an event and an override record.

A preview is made before the lock is taken, and is used only if the journal is unchanged once the lock is held. If the
database refuses one run, the others are still migrated. If the connection is lost, the response still says which runs
were migrated."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

import psycopg
from django.db import DatabaseError, InterfaceError, connection, transaction
from pydantic import Field

from durableagents.contrib.releases.migration_requests import (
    MigrateBody,
    MigrationPreviewBody,
    check_request,
    chosen_runs,
)
from durableagents.contrib.releases.previewing import Preview, preview_run, refusal_by_related, refusal_by_rows
from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified, locked_head
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound, first_line
from ledger.models import Event
from ledger.web.fields import RunId
from ledger.web.roles import OPERATOR
from ledger.web.seeing.payloads import WORDS
from ledger.web.seeing.viewers import reads
from ledger.web.shapes import Shape
from runs import features
from runs.engine.canonical import printable
from runs.engine.checkpoints.position import REENTERED, UNBEGUN
from runs.engine.migrating import MigrationResult, Moving, refused
from runs.journal.database_errors import is_refusal, is_transient
from runs.models import WAITING, State, Wait
from runs.services import idempotency, lifecycle, related_runs
from runs.services.command import Act, make_ready, resolve, resolved, save, wake

log = logging.getLogger("durableagents.contrib.releases")
ACTION = "migrate"
MAX_ATTEMPTS = 3
MOVING = "moving"  # result code of a run that changes faster than it can be previewed
_ANSWERED = "migrated"  # resolution of an operator's stop that is settled by the migration
_DATABASE_ERRORS = (DatabaseError, InterfaceError, psycopg.Error)


class MovedRow(Shape):
    """One run with the result of its migration or preview."""

    run: RunId
    how: Literal["replayed", "reentered", "unbegun", "refused"] = Field(
        description="replayed: continues within its visit. reentered: enters its node again from the top. "
        "unbegun: had not entered a node. refused: not migrated."
    )
    is_moved: bool = Field(description="Whether it was, or would be, migrated.")
    code: str = Field(description="Stable code of a refusal; empty: none.")
    why: str = Field(description="Why the migration is refused, or why the run can't continue within its visit.")
    node: str = Field(description="Current node; empty if it has not entered one.")
    to_node: str = Field(description="Node where it continues in the new version; empty: none.")
    answered: list[str] = Field(description="Slots of calls that are answered from the record.")
    repeated: list[str] = Field(description="Calls that are made afterwards or repeated.")
    withdrawn: list[str] = Field(description="Waits that end, so that people are no longer asked.")
    is_retried: bool = Field(description="The run had failed and is retried with the migration.")

    @classmethod
    def from_found(
        cls, run_id: UUID, found: MigrationResult, *, is_moved: bool = False, is_retried: bool = False
    ) -> Self:
        """Build the row from a preview's result."""
        return cls.of(
            found,
            run=run_id,
            is_moved=is_moved,
            node=found.at.node,
            to_node=found.node,
            answered=list(found.answered),
            repeated=list(found.repeated),
            withdrawn=[f"{kind} at {slot}" for slot, _, kind, _ in found.closes],
            is_retried=is_retried,
        )

    def for_viewer(self) -> Self:
        """Return the row for the viewer.

        The reason is left out for viewers who don't read payloads, as it may quote a checkpoint."""
        return self.model_copy(update={"why": WORDS}) if self.why and not reads(self.run) else self


Rows = dict[UUID, MovedRow]


def preview(agent: str, body: MigrationPreviewBody) -> list[MovedRow]:
    """Preview the migration of the runs without changing anything. Raises NotFound, InvalidInput."""
    moving = check_request(agent, body)

    def preview_one(run_id: UUID) -> MovedRow:
        seen = preview_run(run_id, moving, waits=False)
        return MovedRow.from_found(run_id, seen.found, is_retried=seen.is_retried)

    return _act_on_each(chosen_runs(moving.of, body), preview_one, moving)


def migrate(agent: str, body: MigrateBody, *, by: Actor) -> list[MovedRow]:
    """Migrate the runs one by one. Raises NotFound, InvalidInput, Forbidden, JustificationRequired."""
    why = authorize(by, body.justification)
    moving = check_request(agent, body)
    committing: Rows = {}

    def migrate_next(run_id: UUID) -> MovedRow:
        return migrate_one(run_id, moving, by=by, justification=why, committing=committing)

    return _act_on_each(chosen_runs(moving.of, body), migrate_next, moving, by=by, committing=committing)


def authorize(by: Actor, justification: object) -> str:
    """Return the trimmed justification. Raises Forbidden, JustificationRequired."""
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden("Only an operator may migrate a run.")
    return justified(ACTION, justification)


# --- repeatable requests ----------------------------------------------------------------------------------------------


def migrate_once(
    agent: str, body: MigrateBody, given: object, *, key: str, person: int, by: Actor
) -> tuple[list[MovedRow], bool]:
    """Migrate the runs under an Idempotency-Key.

    A repeated request covers the same runs: it migrates those that were refused or skipped, and returns the
    recorded rows of the others, even if the rest can no longer be migrated. `given` is the request. Returns the rows,
    and whether all were recorded before. Raises KeyInUse, KeyReused, and the errors of `migrate`."""
    why, principal = authorize(by, body.justification), f"migrate:{person}"

    def choose() -> tuple[int, list[str]]:
        return 200, [str(run_id) for run_id in chosen_runs(check_request(agent, body).of, body)]

    _, chosen = idempotency.answer_once(principal, key, {"agent": agent, "asked": given}, choose)
    # a digest, because keys have any length and a run's id is appended
    digest = hashlib.sha256(key.encode()).hexdigest()
    keys = {UUID(run_id): f"{digest}-{run_id}" for run_id in json.loads(chosen)}
    kept = idempotency.kept_answers(principal, list(keys.values()))
    rows = {run_id: MovedRow.model_validate_json(kept[named]) for run_id, named in keys.items() if named in kept}
    rest = [run_id for run_id in keys if run_id not in rows]
    if rest:
        try:
            moving = check_request(agent, body)
        except (InvalidInput, NotFound) as error:
            if not rows:
                raise
            rows |= {run_id: _refused(run_id, error.code, error.detail) for run_id in rest}
        else:
            committing: Rows = {}

            def migrate_next(run_id: UUID) -> MovedRow:
                return _migrate_keyed(run_id, moving, principal, keys[run_id], by, why, committing)

            rows |= {row.run: row for row in _act_on_each(rest, migrate_next, moving, by=by, committing=committing)}
    return [rows[run_id] for run_id in keys], bool(keys) and not rest


def _migrate_keyed(
    run_id: UUID, moving: Moving, principal: str, key: str, by: Actor, why: str, committing: Rows
) -> MovedRow:
    """Migrate one run and store the answer under `key`. A refusal is not stored, so that a new request tries again."""
    for _ in range(MAX_ATTEMPTS):
        seen = preview_run(run_id, moving)  # before the transaction that stores the answer, because it takes long

        def act(seen: Preview = seen) -> tuple[int, MovedRow]:
            row = migrate_one(run_id, moving, by=by, justification=why, committing=committing, seen_before=seen)
            if not row.is_moved:
                raise _NotMoved(row)
            return 200, row

        try:
            return MovedRow.model_validate_json(idempotency.answer_once(principal, key, str(run_id), act)[1])
        except _NotMoved as refusal:
            row = refusal.row
            if row.code != MOVING:
                break
    return row


class _NotMoved(DurableAgentsError):
    """The run was not migrated. The answer is not stored, because a repeated request may migrate the run."""

    def __init__(self, row: MovedRow) -> None:
        super().__init__(row.why)
        self.row = row


# --- one run ----------------------------------------------------------------------------------------------------------


def migrate_one(
    run_id: UUID,
    moving: Moving,
    *,
    by: Actor,
    justification: str,
    seen_before: Preview | None = None,
    committing: Rows | None = None,
) -> MovedRow:
    """Migrate one run if it can continue on the new version; a refusal changes nothing.

    The migration is retried if the journal changes meanwhile. Callers in a transaction make the slow preview before the
    transaction begins and pass it as `seen_before`. `committing` holds the result during the commit."""
    for _ in range(MAX_ATTEMPTS if seen_before is None else 1):
        seen = seen_before or preview_run(run_id, moving)
        if seen.found.is_refused or seen.run is None:
            return MovedRow.from_found(run_id, seen.found)
        try:
            with transaction.atomic():
                act = Act(ACTION, run_id, by=by, justification=justification)
                if (refusal := refusal_by_rows(act.run, act.head, moving)) is not None:
                    return MovedRow.from_found(run_id, refusal)
                if act.head.seq == seen.seq:
                    related_runs.lock(run_id)
                    if (refusal := refusal_by_related(act.run, seen.found)) is not None:
                        return MovedRow.from_found(run_id, refusal)
                    if seen.is_retried:
                        lifecycle.retry(run_id, by=by, justification=justification)
                        act = Act(ACTION, run_id, by=by, justification=justification)
                    _move(act, moving, seen.found)
                    row = MovedRow.from_found(run_id, seen.found, is_moved=True, is_retried=seen.is_retried)
                    if committing is not None:
                        committing[run_id] = row
                    return row
        except DurableAgentsError as error:
            return _refused(run_id, error.code, error.detail)
    return _refused(run_id, MOVING, "it changes faster than it can be previewed: pause it first")


def _move(act: Act, moving: Moving, found: MigrationResult) -> None:
    run, head = act.run, act.head
    act.before |= {"version": run.graph_id, "generation": run.generation}
    closed = _close_waits(act, found)
    if any(wait.kind == Wait.Kind.OPERATOR for wait, _ in closed):
        head.deaths = 0  # those workers died while running code that the run no longer uses
        head.save(update_fields=["deaths"])
    run.node = found.node or run.node
    save(run, "node", now=act.now)
    _wake_run(act, found, bool(closed))
    event = _event(act, moving, found)
    act.done(
        event,
        *(resolved(wait, how, by=act.by.ref) for wait, how in closed),
        after={"version": event.to, "generation": event.generation, "how": found.how},
    )
    run.refresh_from_db(fields=["version", "graph_id", "generation"])


def _close_waits(act: Act, found: MigrationResult) -> list[tuple[Wait, str]]:
    """Withdraw the waits of the visit that the run leaves, and resolve operator stops that the migration settles."""
    keys = set(found.closes)
    rows = [
        wait
        for wait in act.run.waits.select_for_update().filter(resolved_at__isnull=True).order_by("opened_at", "id")
        if (wait.slot, wait.attempt, wait.kind, wait.n) in keys
    ]
    closed = [(wait, _ANSWERED if wait.kind == Wait.Kind.OPERATOR else "withdrawn") for wait in rows]
    for wait, how in closed:
        resolve(wait, how, by=act.by.ref, now=act.now)
    if found.how == REENTERED:
        with connection.cursor() as cursor:
            for statement in features.parts_of_all(lambda each: each.on_withdraw):
                cursor.execute(statement, [act.run.pk])
    return closed


def _wake_run(act: Act, found: MigrationResult, is_closed: bool) -> None:
    """Wake a run that has to continue on its new version. A paused run stays paused."""
    run = act.run
    if run.state == State.PAUSED or run.state in WAITING:
        if found.how == REENTERED or is_closed:
            wake(run, now=act.now)
    elif run.ready_at is not None or run.started_at is not None:
        make_ready(run, now=act.now)
        save(run, "ready_at", now=act.now)


def _event(act: Act, moving: Moving, found: MigrationResult) -> e.RunMigrated:
    payload: dict[str, Any] = act.payload | {
        "nodes": dict(moving.nodes),
        "answered": list(found.answered),
        "again": list(found.repeated),
        "why": found.why,
    }
    if found.how != UNBEGUN:
        payload |= {"state": found.state}
    if moving.state is not None:
        payload |= {"state_made_by": _source_of(moving.state)}
    elif found.state is not None and found.number != moving.to.schema_version:
        steps = [moving.to.upgraders[n] for n in range(found.number, moving.to.schema_version)]
        payload |= {"state_upgraded_by": [_source_of(step) for step in steps]}
    return e.RunMigrated(
        of=moving.of,
        to=moving.to.graph_id,
        generation=act.run.generation + 1,
        how=found.how,
        node=found.node,
        visit=found.at.visit,
        slots=found.at.generation,
        fingerprint=moving.to.fingerprint(),
        by=act.by.ref,
        payload=printable(payload) | ({"state": found.state} if "state" in payload else {}),
    )


def _source_of(function: Any) -> dict[str, str]:
    """Return a function's name and source digest, so that the record tells which function converted the state."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    digest = hashlib.sha256(source.encode()).hexdigest() if source else ""
    return {"name": f"{function.__module__}.{function.__qualname__}", "source": digest}


# --- many runs --------------------------------------------------------------------------------------------------------


def _act_on_each(
    runs: Sequence[UUID],
    act: Callable[[UUID], MovedRow],
    moving: Moving,
    *,
    by: Actor | None = None,
    committing: Mapping[UUID, MovedRow] | None = None,
) -> list[MovedRow]:
    """Call `act` for each run, and return its rows in order.

    If the database refuses one run (lock timeout, deadlock), the others are still processed. If the connection is lost,
    the current run's migration by the actor `by` is looked up and reported as in `committing`, and the remaining runs
    are skipped. Previews (`by` is None) migrate nothing."""
    began = None if by is None or not runs else database_now()
    rows: list[MovedRow] = []
    for n, run_id in enumerate(runs):
        try:
            rows.append(act(run_id))
        except _DATABASE_ERRORS as error:
            if not is_transient(error):
                raise
            why = first_line(error)
            log.warning("moving runs to %s: run %s: %s", moving.to.graph_id, run_id, why)
            if is_refusal(error):
                refusal = f"the database refused the migration ({why}): nothing was done, try again"
                rows.append(_refused(run_id, "busy", refusal))
                continue
            rows.append(_after_lost_connection(run_id, moving, by, began, committing or {}))
            rest = "the connection to the database was lost before its turn: try again"
            return rows + [_refused(other, "not_tried", rest) for other in runs[n + 1 :]]
    return rows


def _after_lost_connection(
    run_id: UUID, moving: Moving, by: Actor | None, began: datetime | None, committing: Mapping[UUID, MovedRow]
) -> MovedRow:
    """Return the run's result from its journal after a lost connection; the lock waits for a pending commit."""
    event = None
    try:
        connection.close()
        if by is not None:
            with transaction.atomic():
                locked_head(run_id)
                rows = Event.objects.filter(run_id=run_id, kind=e.RunMigrated.KIND, at__gte=began)
                events = [e.decode(row.clear) for row in rows.order_by("-seq")[:1]]
            event = next((x for x in events if isinstance(x, e.RunMigrated) and x.by == by.ref), None)
    except DurableAgentsError as gone:
        return _refused(run_id, gone.code, gone.detail)
    except _DATABASE_ERRORS as error:
        if not is_transient(error):
            raise
        connection.close()
        return _refused(run_id, "unknown", "the connection to the database was lost: check whether it was migrated")
    if event is None or event.to != moving.to.graph_id:
        return _refused(run_id, "lost", "the connection to the database was lost before it was migrated: try again")
    if run_id in committing:
        return committing[run_id]
    return MovedRow.from_found(run_id, MigrationResult(event.how, node=event.node), is_moved=True)


def _refused(run_id: UUID, code: str, why: str) -> MovedRow:
    return MovedRow.from_found(run_id, refused(code, why))
