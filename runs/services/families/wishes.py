"""What is done to a run is done to its children: who pauses or cancels it pauses or cancels them, and what they hold
back goes on when it does.

At once after the act, for the first few; the sweeper does the rest, and what a death in between left undone. A child
that somebody paused for its own sake stays so, and one whose parent waits for its budget goes on within its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from django.db import connection, transaction

from ledger import events as e
from ledger.errors import IllegalTransition, RecordDamaged
from ledger.models import Event
from runs.models import ENDED, Run
from runs.services import command, lifecycle
from runs.services.budgets.raising import is_paused_by_person
from runs.services.families.ends import BATCH, FAMILY, tell_parent

log = logging.getLogger("runs.services.families")

_PAIRS = "FROM runs_run c JOIN runs_run p ON p.id = c.parent WHERE c.parent IS NOT NULL AND c.ended_at IS NULL AND "
_OF = " AND (%s::uuid IS NULL OR c.parent = %s) LIMIT %s"
_TO_CANCEL = f"SELECT c.id {_PAIRS} p.state = 'cancelled'{_OF}"
_TO_PAUSE = f"SELECT c.id {_PAIRS} p.state = 'paused' AND c.state NOT IN ('paused', 'compensating'){_OF}"
_TO_RESUME = f"SELECT c.id {_PAIRS} c.state = 'paused' AND p.state <> 'paused' AND p.ended_at IS NULL{_OF}"


def follow(action: str, run: Run) -> None:
    """An act on a run is about to be committed: what it means for its family follows then."""
    if run.parent is not None and run.state in ENDED:
        transaction.on_commit(partial(tell_parent, run.pk), robust=True)
    if action in ("pause", "resume", "cancel", "budget"):
        transaction.on_commit(partial(align, run.pk), robust=True)


def align(parent: UUID | None = None) -> int:
    """Bring children to where their parents are: of one run, or of all. Returns how many were moved."""
    return (
        _each(_TO_CANCEL, parent, lifecycle.cancel, "its parent was cancelled")
        + _each(_TO_PAUSE, parent, lifecycle.pause, "its parent was paused", if_parent=is_paused_by_person)
        + _each(_TO_RESUME, parent, lifecycle.resume, "its parent goes on", if_child=is_paused_by_family)
    )


def _each(
    which: str, parent: UUID | None, act: Callable[..., Run], why: str, *,
    if_parent: Callable[[Run], bool] | None = None, if_child: Callable[[Run], bool] | None = None,
) -> int:  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(which, [parent, parent, BATCH])
        ids = [row[0] for row in cursor.fetchall()]
    moved = 0
    for child in Run.objects.filter(pk__in=ids):
        try:
            if if_parent is not None and not if_parent(Run.objects.get(pk=str(child.parent))):
                continue
            if if_child is not None and not if_child(child):
                continue
            act(child.pk, by=FAMILY, justification=f"{why} ({child.parent})")
            moved += 1
        except IllegalTransition as moved_on:
            log.info("run %s: %s, and it is past that: %s", child.pk, why, moved_on)
        except RecordDamaged as damaged:
            log.error("run %s: %s, and nothing can be done to it: %s", child.pk, why, damaged)
    return moved


def is_paused_by_family(run: Run) -> bool:
    """Whether it is its parent's pause that holds it, and nobody's besides."""
    kinds = (e.PauseRequested.KIND, e.RunPaused.KIND, e.RunResumed.KIND)
    for row in Event.objects.filter(run_id=run.pk, kind__in=kinds).order_by("-seq")[:8]:
        event = e.decode(row.clear)
        if isinstance(event, e.RunResumed):
            return False
        if isinstance(event, e.PauseRequested) or (isinstance(event, e.RunPaused) and ":" in event.by):
            return event.by == FAMILY.ref
    return False


def register() -> None:
    """Follow every act from here on."""
    if follow not in command.on_act:
        command.on_act.append(follow)
