"""Migration of runs to another version, each in its own transaction with an event and an override record.
The preview is made before the lock, and holds only if the journal is unchanged under it."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import justified
from ledger.errors import DurableAgentsError, Forbidden
from ledger.web.roles import OPERATOR
from runs import features
from runs.engine.canonical import printable
from runs.engine.checkpoints.position import REENTERED, UNBEGUN
from runs.engine.migrating import Found, Moving, refused
from runs.models import WAITING, State, Wait
from runs.services import lifecycle, related_runs
from runs.services.command import Act, make_ready, resolve, resolved, save, wake
from runs.services.migrating.asked import MigrateBody, Moved, chosen, moving_of
from runs.services.migrating.looking import Look, beside_another, in_the_way, look
from runs.services.migrating.outcomes import Meant, Outcome, each

ACTION = "migrate"
LOOKS = 3
MOVING = "moving"
_BY_MOVE = "migrated"  # resolution of an operator stop that the move answers


def preview(agent: str, body: Moved) -> list[Outcome]:
    """Preview the migration of the runs; changes nothing. Raises NotFound, InvalidInput."""
    moving = moving_of(agent, body)

    def one(run_id: UUID) -> Outcome:
        seen = look(run_id, moving, waits=False)
        return Outcome.of(run_id, seen.found, is_retried=seen.is_retried)

    return each(chosen(moving.of, body), one, moving)


def migrate(agent: str, body: MigrateBody, *, by: Actor) -> list[Outcome]:
    """Migrate the runs, each by itself. Raises NotFound, InvalidInput, Forbidden, JustificationRequired."""
    why = may_migrate(by, body.justification)
    moving, meant = moving_of(agent, body), Meant()

    def one(run_id: UUID) -> Outcome:
        return migrate_one(run_id, moving, by=by, justification=why, meant=meant)

    return each(chosen(moving.of, body), one, moving, by=by, meant=meant)


def may_migrate(by: Actor, justification: object) -> str:
    """Return the trimmed justification. Raises Forbidden, JustificationRequired."""
    if by.role != OPERATOR and by.auth != "shell":
        raise Forbidden("Only an operator may migrate a run.")
    return justified(ACTION, justification)


def migrate_one(
    run_id: UUID,
    moving: Moving,
    *,
    by: Actor,
    justification: str,
    seen_before: Look | None = None,
    meant: Meant | None = None,
) -> Outcome:
    """Migrate one run if it can continue there, retrying when its journal moves; a refusal changes nothing.
    Callers in a transaction make the slow look before it (`seen_before`). `meant` keeps the answer during the commit.
    """
    for _ in range(LOOKS if seen_before is None else 1):
        seen = seen_before or look(run_id, moving)
        if seen.found.is_refused or seen.run is None:
            return Outcome.of(run_id, seen.found)
        try:
            with transaction.atomic():
                act = Act(ACTION, run_id, by=by, justification=justification)
                if (no := in_the_way(act.run, act.head, moving)) is not None:
                    return Outcome.of(run_id, no)
                if act.head.seq == seen.seq:
                    related_runs.lock(run_id)
                    if (no := beside_another(act.run, seen.found)) is not None:
                        return Outcome.of(run_id, no)
                    if seen.is_retried:
                        lifecycle.retry(run_id, by=by, justification=justification)
                        act = Act(ACTION, run_id, by=by, justification=justification)
                    _move(act, moving, seen.found)
                    told = Outcome.of(run_id, seen.found, is_moved=True, is_retried=seen.is_retried)
                    if meant is not None:
                        meant[run_id] = told
                    return told
        except DurableAgentsError as error:
            return Outcome.of(run_id, refused(error.code, error.detail))
    return Outcome.of(run_id, refused(MOVING, "it changes faster than it can be looked at: pause it first"))


def _move(act: Act, moving: Moving, found: Found) -> None:
    run, head = act.run, act.head
    was = {"version": run.graph_id, "generation": run.generation}
    act.before |= was
    closed = _close(act, found)
    if any(wait.kind == Wait.Kind.OPERATOR for wait, _ in closed):
        head.deaths = 0  # of workers that died of the code it leaves
        head.save(update_fields=["deaths"])
    run.node = found.node or run.node
    save(run, "node", now=act.now)
    _let_go_on(act, found, bool(closed))
    event = _event(act, moving, found)
    act.done(
        event,
        *(resolved(wait, how, by=act.by.ref) for wait, how in closed),
        after={"version": event.to, "generation": event.generation, "how": found.how},
    )
    run.refresh_from_db(fields=["version", "graph_id", "generation"])


def _close(act: Act, found: Found) -> list[tuple[Wait, str]]:
    """Withdraw the waits of a visit that is left, and answer stops that the move answers."""
    keys = set(found.closes)
    rows = [
        wait
        for wait in act.run.waits.select_for_update().filter(resolved_at__isnull=True).order_by("opened_at", "id")
        if (wait.slot, wait.attempt, wait.kind, wait.n) in keys
    ]
    closed = [(wait, _BY_MOVE if wait.kind == Wait.Kind.OPERATOR else "withdrawn") for wait in rows]
    for wait, how in closed:
        resolve(wait, how, by=act.by.ref, now=act.now)
    if found.how == REENTERED:
        with connection.cursor() as cursor:
            for statement in features.every(lambda each: each.on_withdraw):
                cursor.execute(statement, [act.run.pk])
    return closed


def _let_go_on(act: Act, found: Found, is_closed: bool) -> None:
    """Wake a run that has to continue under its new version; a paused one stays paused."""
    run = act.run
    if run.state == State.PAUSED or run.state in WAITING:
        if found.how == REENTERED or is_closed:
            wake(run, now=act.now)
    elif run.ready_at is not None or run.started_at is not None:
        make_ready(run, now=act.now)
        save(run, "ready_at", now=act.now)


def _event(act: Act, moving: Moving, found: Found) -> e.RunMigrated:
    payload: dict[str, Any] = act.payload | {
        "nodes": dict(moving.nodes),
        "answered": list(found.answered),
        "anew": list(found.anew),
        "why": found.why,
    }
    if found.how != UNBEGUN:
        payload |= {"state": found.state}
    if moving.state is not None:
        payload |= {"state_made_by": _named(moving.state)}
    elif found.state is not None and found.number != moving.to.schema_version:
        steps = [moving.to.upgraders[n] for n in range(found.number, moving.to.schema_version)]
        payload |= {"state_upgraded_by": [_named(step) for step in steps]}
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


def _named(function: Any) -> dict[str, str]:
    """Return a function's name and source digest, so that the record says which one made the state."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    digest = hashlib.sha256(source.encode()).hexdigest() if source else ""
    return {"name": f"{function.__module__}.{function.__qualname__}", "source": digest}
