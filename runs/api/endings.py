"""Pieces of a run's row: how it ended where it didn't complete, and how large its journal is."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from ledger.web.shapes import Shape
from runs.models import Run, State


class Trouble(Shape):
    """Why a run failed."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str


class Cancellation(Shape):
    """Why a run was cancelled."""

    by: str = Field(description="Who asked for it: a person, a parent, or the rule whose time had come.")
    why: str


class JournalRow(Shape):
    """How large a run's journal is."""

    events: int
    bytes: int | None = Field(description="As they are stored; null: it began before they were counted.")
    is_large: bool = Field(description="The run has not ended, and had better be renewed before it goes on long.")


def trouble_of(run: Run, ending: Any) -> dict[str, Any] | None:
    """What its last event, whose payload is `ending`, says of a run's failure; None where it didn't fail."""
    if run.state != State.FAILED:
        return None
    failure = ending if isinstance(ending, dict) else {"message": "" if ending is None else str(ending)}
    return {"code": run.error_code or "failed", "message": "", **failure}


def cancellation_of(run: Run, ending: Any) -> Cancellation | None:
    """The same of a cancelled run; None where it wasn't, or its last event doesn't say."""
    said = ending if run.state == State.CANCELLED and isinstance(ending, dict) else {}
    by, why = said.get("asked_by"), said.get("justification")
    return Cancellation(by=by, why=why) if isinstance(by, str) and isinstance(why, str) else None
