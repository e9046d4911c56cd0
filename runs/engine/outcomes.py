"""How a visit ends before its node returns: what the driver acts on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

StopReason = Literal["pause", "cancel", "hold", "drain", "overtaken"]


@dataclass(frozen=True, slots=True)
class Parked:
    """Every branch waits for one of these."""

    waits: tuple[tuple[UUID, str, str], ...]  # wait id, kind, slot


@dataclass(frozen=True, slots=True)
class Stopped:
    """Somebody asked for it; the last step is durable, the next has not begun."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class Broken:
    """What is stored and what the code does don't fit: an operator has to look. Nothing was sent."""

    reason: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Crashed:
    """The code raised. `code` is for machines, `message` and `traceback` for people."""

    code: str
    message: str
    traceback: str


class Unwind(BaseException):
    """Leaves the node function at once; the visit knows why. Not an Exception, so that a node's `except Exception` can't keep a
    run that must stop."""


WEAKEST_FIRST = (Parked, Stopped, Crashed, Broken)


def differs(slot: str, recorded: str, recorded_hash: str, now: str, now_hash: str) -> Broken:
    """What an operator sees where a replay doesn't do what the journal says: both calls. Nothing is sent."""
    found = {
        "slot": slot,
        "recorded": {"call": recorded, "hash": recorded_hash},
        "now": {"call": now, "hash": now_hash},
    }
    return Broken("non_determinism", found)
