"""A child has ended: its parent is told, once, and what it used is debited there.

Told by the worker that drove it, at once; by whoever ended it otherwise, after their commit; and by the sweeper, which
looks for those that nobody told of. Each takes the parent's locks alone: the child's row is only marked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from ledger import events as e
from ledger.actors import Actor
from ledger.append import is_recorded
from ledger.clock import database_now
from ledger.codec import unpack
from ledger.errors import NotFound, RecordDamaged, first_line
from ledger.models import Event, Head
from runs.engine.budget.amounts import RESOURCES
from runs.models import ENDED, Run, Wait
from runs.services.command import journal, locked, resolve, wake

log = logging.getLogger("runs.services.families")
FAMILY = Actor(kind="system", name="family")
BATCH = 200
# Whoever tells marks the child, so that it is told once; one that is being retried just now is no end.
_MARK = """
    UPDATE runs_run SET is_told = true WHERE id = %s AND parent = %s AND ended_at IS NOT NULL AND NOT is_told
    RETURNING state, error_code, end_seq, graph_id, parent_slot, parent_attempt"""
_UNTOLD = """
    SELECT id, parent FROM runs_run WHERE parent IS NOT NULL AND ended_at IS NOT NULL AND NOT is_told
    ORDER BY ended_at LIMIT %s"""


def tell_parent(child: UUID) -> bool:
    """Tell of a run's end, if it is a child that has ended and nobody has told yet."""
    parent = Run.objects.filter(pk=child).values_list("parent", flat=True).first()
    return parent is not None and _tell(child, parent)


def tell_all() -> int:
    """Those that nobody told of. Returns how many were told."""
    with connection.cursor() as cursor:
        cursor.execute(_UNTOLD, [BATCH])
        rows = cursor.fetchall()
    return sum(_told_safely(child, parent) for child, parent in rows)


def tell_many(children: Iterable[UUID]) -> int:
    """Tell of these, as far as they are children that have ended."""
    rows = Run.objects.filter(pk__in=list(children), parent__isnull=False).values_list("id", "parent")
    return sum(_told_safely(child, parent) for child, parent in rows if parent is not None)


def _told_safely(child: UUID, parent: UUID) -> bool:
    """One family's trouble is nobody else's."""
    try:
        return _tell(child, parent)
    except (RecordDamaged, ValueError) as error:
        log.error("run %s: its parent %s can't be told of its end: %s", child, parent, first_line(error))
        return False


@transaction.atomic
def _tell(child: UUID, parent: UUID) -> bool:
    try:
        head, run = locked(parent, under=FAMILY)
    except NotFound:
        if is_recorded(parent):
            raise
        Run.objects.filter(pk=child).update(is_told=True)  # forgotten by the owner of the database: nobody to tell
        return False
    with connection.cursor() as cursor:
        cursor.execute(_MARK, [child, parent])
        row = cursor.fetchone()
    if row is None:
        return False
    state, code, end_seq, graph_id, slot, attempt = row
    if Event.objects.filter(run_id=parent, slot=slot, attempt=attempt, fact="result").exists():
        return False
    used = Head.objects.get(pk=child)
    event = e.ChildEnded(
        slot=slot, attempt=attempt, child=str(child), agent=graph_id, state=state, code=code,
        unpriced_calls=used.unpriced_calls, payload=_told(child, end_seq, state),
        **{name: getattr(used, name) for name in RESOURCES},
    )  # fmt: skip
    for name in (*RESOURCES, "unpriced_calls"):
        setattr(head, name, getattr(head, name) + getattr(used, name))
    head.save(update_fields=[*RESOURCES, "unpriced_calls"])
    now = database_now()
    for wait in run.waits.select_for_update().filter(
        slot=slot, attempt=attempt, kind=Wait.Kind.CHILD, resolved_at__isnull=True
    ):
        resolve(wait, state, by=f"run:{child}", now=now)
        if run.state not in ENDED:
            wake(run, now=now)
    journal(parent, event, by=Actor(kind="run", name=str(child)))
    return True


def _told(child: UUID, end_seq: int | None, state: str) -> dict[str, Any]:
    """What the parent's node gets of it: the output, or the error's message."""
    row = Event.objects.filter(run_id=child, seq=end_seq or 0).first()
    payload = None if row is None or row.sealed is None else unpack(row.sealed)
    if state == "completed":
        return {"output": payload}
    told = payload if isinstance(payload, dict) else {}
    return {"message": str(told.get("message") or told.get("justification") or "")}
