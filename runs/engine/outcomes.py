"""Outcomes of a visit that ends before its node returns: the driver acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from runs.engine.budget import Breach, Usage

StopReason = Literal["pause", "cancel", "hold", "halt", "drain", "overtaken"]


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """A result, `failure` or `accepted` receipt after the lease was lost: may be reported, not recorded."""

    run_id: str
    slot: str
    attempt: int
    tool: str
    result: Any = None
    external_id: str | None = None
    failure: dict[str, Any] | None = None
    accepted: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """Every branch waits for one of these."""

    waits: tuple[tuple[UUID, str, str], ...]  # wait id, kind, slot


@dataclass(frozen=True, slots=True)
class Stopped:
    """Stopped on request, after a durable step. `key` is the halted call, unless the whole run is halted."""

    reason: StopReason
    key: str = ""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The call at `slot` would break a cap: nothing was sent, and people are asked to raise it."""

    slot: str
    wanted: Usage
    breach: Breach | None = None  # None: the database said so


@dataclass(frozen=True, slots=True)
class Broken:
    """Record and code don't fit: an operator has to act. Nothing was sent."""

    reason: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Crashed:
    """The code raised. `code` is for machines, `message` and `traceback` for people."""

    code: str
    message: str
    traceback: str


class Unwind(BaseException):
    """Leaves the node at once. Not an Exception, so that a node's `except Exception` can't swallow it."""


WEAKEST_FIRST = (Parked, Exceeded, Stopped, Crashed, Broken)


def describe_call(call: str, hash: str = "", arguments: Any = None) -> dict[str, Any]:
    """Describe a call for an operator, with its arguments if known."""
    return {"call": call, "hash": hash} | ({} if arguments is None else {"arguments": arguments})


def differs(slot: str, recorded: dict[str, Any], now: dict[str, Any]) -> Broken:
    """Return the stop for a replay that differs from the journal, showing both calls. Nothing is sent."""
    return Broken("non_determinism", {"slot": slot, "recorded": recorded, "now": now})


_HUMAN = frozenset({"approval", "input", "reconcile", "operator"})


def waiting_state(kinds: set[str]) -> str:
    """Return the state of a run with these kinds of waits: waits for people take precedence."""
    if kinds & _HUMAN:
        return "waiting_human"
    return "waiting_tool" if "webhook" in kinds else "waiting_event"
