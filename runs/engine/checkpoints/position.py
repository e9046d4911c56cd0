"""The position of a run according to its journal: at its checkpoint, or where a migration has put it.

A migration's event contains the state, so a worker can continue from it even if later checkpoints can't be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ledger import events as e
from runs.engine.errors import JournalBroken
from runs.engine.journal import Snapshot
from runs.engine.messages import between
from runs.engine.tape import Tape, payload_of

REPLAYED: Final = "replayed"
REENTERED: Final = "reentered"
UNBEGUN: Final = "unbegun"


@dataclass(frozen=True, slots=True)
class Position:
    """The starting point of a claim: the checkpoint, the events after it, and a node and state to enter first, if any.

    `unread` is the error if no node can continue from the state. Operations that need no node, such as ending the run,
    still work.
    """

    at: Snapshot
    tail: Sequence[e.Event]
    entry: tuple[str, Any] | None = None
    unread: JournalBroken | None = None


def last_migration(events: Sequence[e.Event]) -> tuple[int, e.RunMigrated] | None:
    """Return the newest migration among these events, with its index; None if there is none."""
    places = (i for i in range(len(events) - 1, -1, -1) if isinstance(events[i], e.RunMigrated))
    place = next(places, None)
    return None if place is None else (place, events[place])  # type: ignore[return-value]


def position_of(at: Snapshot, tail: Sequence[e.Event]) -> Position:
    """Return the position of a run.

    `at` is the newest readable checkpoint, or an empty one before the first node; `tail` are the events after it.
    """
    found = last_migration(tail)
    if found is None:
        return _carried_on(at, tail)
    place, moved = found
    state = payload_of(moved).get("state")
    if moved.how == UNBEGUN:
        return _carried_on(at, tail)
    if moved.how == REENTERED:
        return _reentered(moved, state, tail[place + 1 :])
    entered = [i for i in range(place) if isinstance(tail[i], e.VisitEntered)]
    since = entered[-1] + 1 if entered else 0
    return Position(Snapshot(moved.node, moved.visit, moved.slots, moved.fingerprint, state), tail[since:])


def _reentered(moved: e.RunMigrated, state: Any, since: Sequence[e.Event]) -> Position:
    """Return the position before the migration's node, or in it.

    The position is in the node if that was entered but its checkpoint is unreadable.
    """
    visit = moved.visit + 1
    if not any(isinstance(x, e.VisitEntered) and x.visit == visit for x in since):
        return Position(Snapshot("", moved.visit, moved.slots, moved.fingerprint, None), since, (moved.node, state))
    state = between(Tape(since), f"{moved.slots}.{moved.visit}", state)
    return Position(Snapshot(moved.node, visit, moved.generation, moved.fingerprint, state), since)


def _carried_on(at: Snapshot, tail: Sequence[e.Event]) -> Position:
    """Return the position at the checkpoint; before the first one, at the entry of a renewal or fork."""
    come = next((x for x in tail if isinstance(x, (e.RunCarriedOn, e.RunForked))), None)
    if at.node or come is None or not come.node:
        return Position(at, tail)
    payload = payload_of(come)
    return Position(
        replace(at, fingerprint=payload.get("code", at.fingerprint)), tail, (come.node, payload.get("state"))
    )


def version_of(created: e.RunCreated, entered: e.Event | None, tail: Sequence[e.Event]) -> tuple[str, int | None]:
    """Return a run's version and generation (None: unknown).

    They come from its newest migration, or else from its checkpoint's event, or else from its creation.
    """
    if (found := last_migration(tail)) is not None:
        return found[1].to, found[1].generation
    payload = payload_of(entered)
    if "version" in payload:
        return str(payload["version"]), None
    return f"{created.agent}@{created.version}", None
