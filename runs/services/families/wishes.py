"""Pass a run's pause, resume or cancel on to its children.
The first few children receive it after the commit, the rest from the sweeper. A child that a person paused stays
paused; one whose parent waits for a budget continues within its own budget."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from ledger.actors import Actor
from ledger.errors import DurableAgentsError, IllegalTransition
from runs.models import ENDED, Run
from runs.services import command, lifecycle, related_runs
from runs.services.families import reopening
from runs.services.families.ends import tell_parent
from runs.services.families.reopening import BATCH, FAMILY
from runs.services.undo import UNDO, said_at_end

log = logging.getLogger("runs.services.families")
FEW = 50

# Each working child with its parent's state. Parent and head are found by id, so the cost doesn't depend on how many
# children have ended. Children that would refuse (already requested, waiting for budget, see `_may_go_on`) are left
# out, so that they aren't locked again and again.
_PAIRS = """
    FROM (SELECT id, state, node, parent, (SELECT CASE p.node WHEN '_undo' THEN 'cancelled' ELSE p.state END
                 FROM runs_run p WHERE p.id = runs_run.parent) AS above,
                 (SELECT p.state FROM runs_run p WHERE p.id = runs_run.parent) AS state_above,
                 (SELECT ARRAY[is_pause_requested, is_cancel_requested, is_on_hold] FROM ledger_head h
                  WHERE h.run_id = runs_run.id) AS asked
          FROM runs_run WHERE parent IS NOT NULL AND ended_at IS NULL
          AND (%(parent)s::uuid IS NULL OR parent = %(parent)s)) AS c
    WHERE NOT asked[2] AND """
_TO_PAUSE = "above = 'paused' AND state NOT IN ('paused', 'compensating') AND NOT asked[1]"
_CANCEL = f"SELECT id {_PAIRS} above = 'cancelled' AND node <> '_undo' AND id > %(after)s ORDER BY id LIMIT %(most)s"
_PAUSED = f"SELECT DISTINCT parent {_PAIRS} {_TO_PAUSE}"
_PAUSE = f"SELECT id {_PAIRS} {_TO_PAUSE} AND parent = ANY(%(of)s) AND id > %(after)s ORDER BY id LIMIT %(most)s"
# An undoing child can't be cancelled. Whatever its parent's end is, it continues unless the parent is paused.
_MAY_RESUME = "CASE node WHEN '_undo' THEN state_above <> 'paused' ELSE above NOT IN ('paused', 'cancelled') END"
_RESUME = f"""SELECT id {_PAIRS} state = 'paused' AND {_MAY_RESUME} AND NOT asked[3] AND id > %(after)s
    AND (node = '_undo' OR NOT EXISTS (SELECT 1 FROM runs_wait w WHERE w.run_id = c.id AND w.kind = 'budget'
                                       AND w.resolved_at IS NULL))
    ORDER BY id LIMIT %(most)s"""
_FIRST = UUID(int=0)


def follow(action: str, run: Run) -> None:
    """After the commit, report the run's end to its parent and pass the action on to its children."""
    if run.parent is not None and run.state in ENDED:
        transaction.on_commit(lambda: tell_parent(run.pk), robust=True)
    if action in ("pause", "resume", "cancel", "retry", "budget"):
        transaction.on_commit(lambda: align(run.pk, most=FEW), robust=True)


def align(parent: UUID | None = None, *, most: int = BATCH) -> int:
    """Bring the children of one run, or of all runs, in line with their parents.
    Returns the number of children changed."""
    paused = [run.pk for run in Run.objects.filter(pk__in=_ids(_PAUSED, parent)) if command.held_by(run) is not None]
    return (
        reopening.reopen_those_waited_for(parent, most=most)
        + _act_on_each(_rows(_CANCEL, parent), _cancel, "its parent was cancelled", most)
        + _act_on_each(_rows(_PAUSE, parent, of=paused), lifecycle.pause, "its parent was paused", most)
        + _act_on_each(filter(_may_go_on, _rows(_RESUME, parent)), lifecycle.resume, "its parent goes on", most)
    )


def _cancel(child: UUID, *, by: Actor, justification: str) -> Run:
    """Cancel a child with the parent's choice about effects.
    If the parent has made no choice, the child's agent chooses."""
    row = lifecycle.find(child)
    above = None if row.parent is None else Run.objects.filter(pk=row.parent).first()
    effects = None if above is None else UNDO if above.is_undoing else said_at_end(above)
    return lifecycle.cancel(child, by=by, justification=justification, effects=effects)


def _ids(which: str, parent: UUID | None, **more: Any) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(which, {"parent": parent, **more})
        return [row[0] for row in cursor.fetchall()]


def _rows(which: str, parent: UUID | None, **more: Any) -> Iterator[Run]:
    """Yield all runs page by page, so that runs that refuse don't hold up the others."""
    after = _FIRST
    while ids := _ids(which, parent, after=after, most=BATCH, **more):
        after = ids[-1]
        yield from Run.objects.filter(pk__in=ids).order_by("id")


def _act_on_each(runs: Iterator[Run], act: Callable[..., Run], why: str, most: int) -> int:
    moved = 0
    for child in runs:
        try:
            act(child.pk, by=FAMILY, justification=f"{why} ({child.parent})")
            moved += 1
        except IllegalTransition as moved_on:
            log.info("run %s: %s, and it is past that: %s", child.pk, why, moved_on)
        except (DurableAgentsError, Run.DoesNotExist) as damaged:
            log.error("run %s: %s, and nothing can be done to it: %s", child.pk, why, damaged)
        if moved >= most:
            break
    return moved


def _may_go_on(run: Run) -> bool:
    """Return whether no person has paused the run and a resume would be accepted.
    The latter also matters for a run whose budget was raised while a related run did its work
    (`budgets/raising.py`)."""
    return command.held_by(run) in (None, FAMILY.ref) and related_runs.find_competing_run(run) is None
