"""Position of a run by its journal: at its checkpoint, or where a migration, whose event holds the state, has put
it. A claimant continues from there even if later checkpoints can't be read."""

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
    """A claimant's starting point: checkpoint, later events, and a node and state to enter first, if any. `unread` says
    why no node can continue from the state; operations without a node, such as ending, still work."""

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
    """Return the position of a run whose newest readable checkpoint is `at`, or that is before its first node."""
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
    """Return the position before the migration's node, or in it if it was entered and its checkpoint can't be read."""
    visit = moved.visit + 1
    if not any(isinstance(x, e.VisitEntered) and x.visit == visit for x in since):
        return Position(Snapshot("", moved.visit, moved.slots, moved.fingerprint, None), since, (moved.node, state))
    state = between(Tape(since), f"{moved.slots}.{moved.visit}", state)
    return Position(Snapshot(moved.node, visit, moved.generation, moved.fingerprint, state), since)


def _carried_on(at: Snapshot, tail: Sequence[e.Event]) -> Position:
    """Return the position at the checkpoint, or at the entry that a renewal or fork starts from."""
    come = next((x for x in tail if isinstance(x, (e.RunCarriedOn, e.RunForked))), None)
    if at.node or come is None or not come.node:
        return Position(at, tail)
    payload = payload_of(come)
    return Position(
        replace(at, fingerprint=payload.get("code", at.fingerprint)), tail, (come.node, payload.get("state"))
    )


def version_of(created: e.RunCreated, entered: e.Event | None, tail: Sequence[e.Event]) -> tuple[str, int | None]:
    """Return a run's version and generation (None: unknown) by its newest migration, checkpoint event or creation."""
    if (found := last_migration(tail)) is not None:
        return found[1].to, found[1].generation
    payload = payload_of(entered)
    if "version" in payload:
        return str(payload["version"]), None
    return f"{created.agent}@{created.version}", None
