"""Report a child's proven end to its parent, once, and debit its usage.
The report waits until the usage of the child's own children is known. The parent is locked first, then the children's
rows. The sweeper reports ends that have not been reported otherwise."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, Sum

from ledger import events as e
from ledger.append import is_recorded
from ledger.clock import database_now
from ledger.errors import NotFound, RecordDamaged
from ledger.models import Event, Head
from runs.engine.budget import RESOURCES
from runs.engine.errors import JournalBroken
from runs.engine.steps.children import child_id
from runs.engine.tape import payload_of
from runs.journal.reader import end_of, origin_of
from runs.models import ENDED, Run, Wait
from runs.services.command import journal, locked, resolve, wake
from runs.services.families import reopening
from runs.services.families.reopening import BATCH, FAMILY

log = logging.getLogger("runs.services.families")
# Limit of children of one parent in one transaction.
TOGETHER = 50
MAX_BYTES = 4 * 1024 * 1024  # stored size; a larger end is reported alone
_COUNTED = (*RESOURCES, "unpriced_calls")
# Excludes runs that are being retried, which have not ended, and runs with working children, which will use more.
_ENDED = """
    SELECT c.id, c.state, c.end_seq, c.graph_id, c.parent_slot, c.parent_attempt FROM runs_run c
    WHERE c.id = ANY(%s) AND c.parent = %s AND c.ended_at IS NOT NULL AND NOT c.is_told
      AND NOT EXISTS (SELECT 1 FROM runs_run g WHERE g.parent = c.id AND NOT g.is_told)
    ORDER BY c.ended_at, c.id LIMIT %s FOR UPDATE OF c"""
_UNTOLD = """
    SELECT c.parent, c.id FROM runs_run c
    WHERE c.parent IS NOT NULL AND c.ended_at IS NOT NULL AND NOT c.is_told AND NOT (c.id = ANY(%s::uuid[]))
      AND NOT EXISTS (SELECT 1 FROM runs_run g WHERE g.parent = c.id AND NOT g.is_told)
    ORDER BY c.ended_at LIMIT %s"""


def tell_parent(child: UUID) -> bool:
    """Report a run's end if it is an unreported child that has ended. Raises what `tell` raises."""
    parent = Run.objects.filter(pk=child).values_list("parent", flat=True).first()
    return parent is not None and tell(parent, [child]) > 0


def tell_many(children: Iterable[UUID]) -> int:
    """Report the ends of these children, and return how many were reported.
    Failures are logged and left to the sweeper."""
    notified, families = 0, defaultdict[UUID, list[UUID]](list)
    rows = Run.objects.filter(pk__in=list(children), parent__isnull=False).values_list("parent", "id")
    for parent, child in rows:
        if parent is not None:
            families[parent].append(child)
    for parent, ended in families.items():
        try:
            notified += tell(parent, ended)
        except (RecordDamaged, JournalBroken, Run.DoesNotExist) as error:
            log.warning("run %s: can't record the ends of %s of its children: %s", parent, len(ended), error)
    return notified


def untold(*, excluding: Sequence[UUID] = ()) -> dict[UUID, list[UUID]]:
    """Return a batch of ended children that have not been reported yet, earliest first, grouped by parent."""
    families = defaultdict[UUID, list[UUID]](list)
    with connection.cursor() as cursor:
        cursor.execute(_UNTOLD, [list(excluding), BATCH])
        for parent, child in cursor.fetchall():
            families[parent].append(child)
    return families


def tell(parent: UUID, children: Sequence[UUID]) -> int:
    """Report the ends of these children to one parent.
    Returns how many. Raises RecordDamaged, JournalBroken, Run.DoesNotExist."""
    notified = 0
    while now := _tell(parent, children):
        notified += now
    return notified


@transaction.atomic
def _tell(parent: UUID, children: Sequence[UUID]) -> int:
    try:
        head, run = locked(parent, under=FAMILY)
    except NotFound:
        if is_recorded(parent):
            raise
        Run.objects.filter(pk__in=children).update(is_told=True)  # The database's owner has deleted the parent.
        return 0
    ended: dict[UUID, e.ChildEnded] = {}
    size = 0
    with connection.cursor() as cursor:
        cursor.execute(_ENDED, [list(children), parent, TOGETHER])
        rows = cursor.fetchall()
    for row in rows:
        event, stored = _ended(parent, *row)
        size += stored
        if ended and size > MAX_BYTES:
            break
        ended[row[0]] = event
    Run.objects.filter(pk__in=list(ended)).update(is_told=True)
    known = set(
        Event.objects.filter(
            run_id=parent, fact="result", slot__in=[event.slot for event in ended.values()]
        ).values_list("slot", "attempt")
    )
    new = [event for event in ended.values() if (event.slot, event.attempt) not in known]
    again = {child: event for child, event in ended.items() if (event.slot, event.attempt) in known}
    new += reopening.undone(run, again) if again else []
    if new:
        _debit(head, new)
        _let_go_on(run, new)
        journal(parent, *new, by=FAMILY)
    if ended and run.parent is not None and run.state in ENDED:
        # The report of the parent's own end was waiting for this one.
        transaction.on_commit(lambda: tell_parent(parent), robust=True)
    return len(new)


def _ended(
    parent: UUID, child: UUID, state: str, end_seq: int | None, graph_id: str, slot: str, attempt: int
) -> tuple[e.ChildEnded, int]:
    """Return the event for a child's end, and its stored size.
    Raises RecordDamaged, JournalBroken. The event contains the id with which the child was started, and the usage of
    all its continuations."""
    come = origin_of(child)
    first = come.first if come is not None else str(child)
    if first != child_id(str(parent), slot, attempt):
        raise JournalBroken(
            f"the row of run {child} says that it is a child of {parent}, which its id does not confirm", "forged_run"
        )
    if not Head.objects.filter(pk=child).exists():
        raise RecordDamaged(child, "its head")
    end, stored = end_of(child, end_seq, state)
    went_on = {} if come is None else {"run": str(child)}
    event = e.ChildEnded(
        slot=slot,
        attempt=attempt,
        child=first,
        agent=graph_id,
        state=state,
        code=end.code if isinstance(end, e.RunFailed) else "",
        payload=_end_payload(end) | went_on,
        **_used(first),
    )
    return event, stored


def _used(first: str) -> dict[str, int]:
    every = Run.objects.filter(Q(pk=first) | Q(first=first)).values("pk")
    used = Head.objects.filter(pk__in=every).aggregate(**{f"all_{name}": Sum(name) for name in _COUNTED})
    return {name: used[f"all_{name}"] or 0 for name in _COUNTED}


def _end_payload(end: e.Event) -> dict[str, Any]:
    if isinstance(end, e.RunCompleted):
        return {"output": end.payload}
    payload = payload_of(end)
    left = reopening.left_by(end)
    return {"message": str(payload.get("message") or payload.get("justification") or "")} | (
        {"left": left} if left else {}
    )


def _debit(head: Head, ended: Sequence[e.ChildEnded]) -> None:
    for name in _COUNTED:
        setattr(head, name, getattr(head, name) + sum(getattr(event, name) for event in ended))
    head.save(update_fields=[*_COUNTED])


def _let_go_on(run: Run, ended: Sequence[e.ChildEnded]) -> None:
    """Resolve the waits for these children, and wake the run, even if a wait's row is missing."""
    now, by_slot = database_now(), {(event.slot, event.attempt): event for event in ended}
    waits = run.waits.select_for_update().filter(
        slot__in=[event.slot for event in ended], kind=Wait.Kind.CHILD, resolved_at__isnull=True
    )
    for wait in waits:
        event = by_slot.get((wait.slot, wait.attempt))
        if event is not None:
            resolve(wait, event.state, by=f"run:{event.child}", now=now)
    if run.state not in ENDED:
        wake(run, now=now)
