"""Reopen a completed child when its parent undoes its effects, as planned in the parent's journal.
The sweeper does this for the parent's wait, in a transaction of its own, so that no transaction locks two runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.erasure import erased
from ledger.errors import DurableAgentsError, IllegalTransition
from runs.engine.errors import JournalBroken
from runs.engine.steps.children import child_id
from runs.engine.tape import payload_of
from runs.engine.undo import UNDO_NODE, WITH_PARENT
from runs.engine.undoing.plan import Effect, Plan
from runs.engine.undoing.visit import REFUSED
from runs.journal.reader import at_slot, origin_of, undo_of
from runs.models import Run, State, Wait
from runs.services.command import journal, locked, make_ready, resolve, resolved, save, wake

FAMILY: Final = Actor(kind="system", name="family")
BATCH: Final = 200


log = logging.getLogger("runs.services.families")
_DEBITED = (
    "steps",
    "tool_calls",
    "model_calls",
    "tokens_in",
    "tokens_out",
    "usd_micro",
    "unpriced_calls",
)
# Open waits for undoing a child that has ended and was reported, and so was not reopened yet. A wait's detail may
# contain anything, so the id is checked.
_WAITED_FOR = """
    SELECT w.id, w.run_id, c.id FROM (
        SELECT id, run_id, CASE WHEN detail ->> 'undo' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                                THEN (detail ->> 'undo')::uuid END AS child
        FROM runs_wait WHERE resolved_at IS NULL AND kind = 'child' AND detail ? 'undo'
        AND (%(parent)s::uuid IS NULL OR run_id = %(parent)s)) AS w
    JOIN runs_run c ON c.id = w.child AND c.parent = w.run_id AND c.ended_at IS NOT NULL AND c.is_told
    ORDER BY w.id LIMIT %(most)s"""


def reopen_those_waited_for(parent: UUID | None = None, *, most: int = BATCH) -> int:
    """Reopen children whose parents wait for their undoing.
    Returns the number of attempts. After a failure the wait is resolved as refused, and a person decides."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITED_FOR, {"parent": parent, "most": most})
        rows = cursor.fetchall()
    for wait, above, child in rows:
        try:
            reopen(child, above)
        except (DurableAgentsError, JournalBroken, Run.DoesNotExist) as no:
            if Run.objects.filter(pk=child, parent=above, node=UNDO_NODE, is_told=False).exists():
                continue  # The child was reopened meanwhile, and its end will be reported.
            log.error("run %s: its parent %s undoes what it did, and it can't be reopened: %s", child, above, no)
            _refuse(wait, above)
    return len(rows)


@transaction.atomic
def reopen(child: UUID, parent: UUID) -> Run:
    """Reopen a completed child to undo its effects.
    Raises Erased, IllegalTransition, NotFound, JournalBroken."""
    _, run = locked(child, under=FAMILY)
    if run.erased_at is not None:
        raise erased(child)
    if run.state != State.COMPLETED or not run.is_told or run.goes_on_as is not None or run.parent != parent:
        raise IllegalTransition("undo", str(run.state), "Only a completed child can be reopened, and only once.")
    if not any(_is_of(effect, run) for effect in _planned(parent)):
        raise IllegalTransition("undo", str(run.state), f"The parent {parent} has no undo plan that names this run.")
    return _set_going(run, parent)


def _set_going(run: Run, parent: UUID) -> Run:
    """Reopen the run as undoing. A cancel request and caps are removed, because they would stop it."""
    now = database_now()
    run.reopen_to_undo()
    run.node, run.ended_at, run.end_seq, run.is_told = UNDO_NODE, None, None, False
    make_ready(run, now=now)
    save(run, "node", "ended_at", "end_seq", "is_told", "ready_at", now=now)
    because = {"justification": f"its parent is undoing its effects ({parent})"}
    undo_asked = e.UndoAsked(by=f"run:{parent}", code=WITH_PARENT, payload=because)
    journal(run.id, undo_asked, e.BudgetSet(by=FAMILY.ref, caps={}, until=""), by=FAMILY)
    return run


def _planned(parent: UUID) -> list[Effect]:
    begun = next((x for x in undo_of(parent) if isinstance(x, e.UndoBegun)), None)
    return [] if begun is None else Plan.model_validate(begun.payload).all()


def _is_of(effect: Effect, run: Run) -> bool:
    """Return whether a planned effect is this child or the run that this child continues."""
    come = origin_of(run.pk)
    first = str(run.pk) if come is None else come.first
    named = child_id(str(run.parent), effect.slot, effect.attempt)
    return effect.what in ("child", "reopen") and named == first


@transaction.atomic
def _refuse(wait_id: UUID, parent: UUID) -> None:
    _, run = locked(parent, under=FAMILY)
    now = database_now()
    wait = Wait.objects.select_for_update().get(pk=wait_id)
    if wait.resolved_at is not None:
        return
    resolve(wait, REFUSED, by=FAMILY.ref, now=now)
    wake(run, now=now)
    journal(run.id, resolved(wait, REFUSED, by=FAMILY.ref), by=FAMILY)


def undone(run: Run, ended: Mapping[UUID, e.ChildEnded]) -> list[e.ChildEnded]:
    """Return the end events of undone children for the slots of their waits.
    They contain the usage since the end that was reported earlier. Raises JournalBroken."""
    events = []
    waits: dict[str, Any] = {
        str(wait.detail["undo"]): wait
        for wait in run.waits.filter(kind=Wait.Kind.CHILD, resolved_at__isnull=True, detail__has_key="undo")
    }
    for child, event in ended.items():
        wait = waits.get(str(child))
        if wait is not None:
            earlier = _earlier(run, child, event)
            events.append(replace(event, slot=wait.slot, attempt=wait.attempt, **_since(event, earlier)))
    return events


def _earlier(run: Run, child: UUID, event: e.ChildEnded) -> list[e.ChildEnded]:
    places = {(event.slot, event.attempt)} | {
        (wait.slot, wait.attempt) for wait in run.waits.filter(kind=Wait.Kind.CHILD, detail__undo=str(child))
    }
    return [
        x
        for slot, attempt in sorted(places, key=str)
        for x in at_slot(run.pk, slot or "")
        if isinstance(x, e.ChildEnded) and x.attempt == attempt
    ]


def _since(event: e.ChildEnded, earlier: list[e.ChildEnded]) -> dict[str, Any]:
    return {name: getattr(event, name) - sum(getattr(x, name) for x in earlier) for name in _DEBITED}


def left_by(end: e.Event) -> int:
    return len((payload_of(end).get("undo") or {}).get("left", ()))
