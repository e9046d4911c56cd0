"""Outcomes of a visit that ends before its node returns. The driver acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from runs.engine.budget import Breach, Usage

StopReason = Literal["pause", "cancel", "hold", "halt", "drain", "overtaken"]


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """Facts about a call after the lease was lost. They may be reported, but not recorded.

    They are a `result`, a `failure`, or the receipt of an `accepted` call.
    """

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
    """The node waits until one of `waits` is resolved."""

    waits: tuple[tuple[UUID, str, str], ...]  # (wait's id, kind, slot)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The visit stopped on request, after a durable step.

    `key` is the key of a halted call; it is empty if the whole run is halted.
    """

    reason: StopReason
    key: str = ""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The call at `slot` would exceed a cap. Nothing was sent, and people are asked to raise the cap."""

    slot: str
    wanted: Usage
    breach: Breach | None = None  # None if the database refused the intent


@dataclass(frozen=True, slots=True)
class Broken:
    """The record and the code don't fit, so an operator must act. Nothing was sent."""

    reason: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Crashed:
    """The node's code raised. `code` is for programs, `message` and `traceback` are for people."""

    code: str
    message: str
    traceback: str


class Unwind(BaseException):
    """Raised to leave the node at once.

    It is not an Exception, so that a node's `except Exception` can't swallow it.
    """


WEAKEST_FIRST = (Parked, Exceeded, Stopped, Crashed, Broken)


def describe_call(call: str, hash: str = "", arguments: Any = None) -> dict[str, Any]:
    """Return a description of a call for an operator, with its arguments if known."""
    return {"call": call, "hash": hash} | ({} if arguments is None else {"arguments": arguments})


def differs(slot: str, recorded: dict[str, Any], now: dict[str, Any]) -> Broken:
    """Return the stop for a replay that differs from the journal. The stop shows both calls; nothing is sent."""
    return Broken("non_determinism", {"slot": slot, "recorded": recorded, "now": now})


_HUMAN = frozenset({"approval", "input", "reconcile", "operator"})


def waiting_state(kinds: set[str]) -> str:
    """Return the state of a run with waits of these kinds. Waits for people take precedence."""
    if kinds & _HUMAN:
        return "waiting_human"
    return "waiting_tool" if "webhook" in kinds else "waiting_event"
