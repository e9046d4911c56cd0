"""A run that was moved, as the newest version alone would have done it, where no visit was done by two versions.

Moved before its first node, it did all of it; entered anew, the visit that was left counts for nothing, and those
before it are held against the newest code when the story is told. A visit that went on in the middle is no one's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ledger import events as e
from runs.engine.checkpoints.position import REPLAYED
from runs.engine.recordings.recording import BadRecording

_VISIT = re.compile(r"(\d+)\.(\d+)(?=/|$)")
Timed = tuple[e.Event, datetime]


def as_one_version(events: Sequence[e.Event], times: Sequence[datetime]) -> tuple[list[e.Event], list[datetime]]:
    """The events without the moves and the visits that those left, numbered as in a run that was never moved, with
    their times. Raises BadRecording where one version can't have done all of it."""
    kept: list[Timed] = []
    visit, left = 0, 0  # the one under way, as it is numbered here, 0 between two; how many were left
    for event, at in zip(events, times, strict=True):
        if not isinstance(event, e.RunMigrated):
            event = _numbered(event, left)
            visit = event.visit if isinstance(event, e.VisitEntered) else visit
            kept.append((event, at))
            continue
        inside = [each for each in kept if visit and _is_of(each[0], visit)]
        if event.how == REPLAYED or any(isinstance(x, e.MessageHandled) for x, _ in inside):
            raise BadRecording(f"it was moved from {event.of} to {event.to}: the code of neither did all of it")
        kept = [each for each in kept if each not in inside]
        visit, left = 0, left + (1 if visit else 0)
    return [event for event, _ in kept], [at for _, at in kept]


def _is_of(event: e.Event, visit: int) -> bool:
    """Whether an event is of this visit alone."""
    if isinstance(event, e.VisitEntered):
        return event.visit == visit
    found = _VISIT.match(event.visit if isinstance(event, e.MessageHandled) else event.slot or "")
    return found is not None and int(found[2]) == visit


def _numbered(event: e.Event, left: int) -> e.Event:
    """With the slots that its calls would have had."""

    def anew(slot: str) -> str:
        return _VISIT.sub(lambda found: f"0.{int(found[2]) - left}", slot, count=1) if _VISIT.match(slot) else slot

    if event.slot is not None:
        event = replace(event, slot=anew(event.slot))
    match event:
        case e.VisitEntered():
            return replace(event, visit=event.visit - left)
        case e.MessageHandled():
            return replace(event, visit=anew(event.visit), calls=[anew(slot) for slot in event.calls])
        case _:
            return event
