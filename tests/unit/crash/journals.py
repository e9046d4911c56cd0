"""Events and records for the judges' tests, in the API's terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.system.crash.checker import Facts

Event = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def told(kind: str, seconds: float = 0, slot: str | None = "0.1/1", attempt: int = 0, **data: Any) -> Event:
    """Return an event; `payload` in the data becomes its payload."""
    event = {"kind": kind, "slot": slot, "attempt": attempt, "at": at(seconds).isoformat()}
    return event | {"payload": data.pop("payload", None) or {}, "data": data}


def numbered(events: Iterable[Event]) -> list[Event]:
    return [event | {"seq": n} for n, event in enumerate(events, start=1)]


def facts_of(events: Sequence[Event] = (), state: str = "completed", run_id: str = "run", **run: Any) -> Facts:
    return Facts(run_id, {"state": state, **run}, numbered(events), [], [], [])


def used(**amounts: int) -> dict[str, int]:
    return {"tokens_in": 0, "tokens_out": 0, "usd_micro": 0, "tool_calls": 2, "model_calls": 0} | amounts
