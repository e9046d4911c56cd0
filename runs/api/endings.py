"""Rows about a run's failure, cancellation and journal size."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from ledger.web.shapes import Shape
from runs.models import Run, State


class Trouble(Shape):
    """The reason for a failure."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(description="Stable code of the failure.")
    message: str = Field(description="Description of the failure.")


class Cancellation(Shape):
    """The reason for a cancellation."""

    by: str = Field(description="Who cancelled it: a person, the parent run, or the rule whose time had come.")
    why: str = Field(description="Reason that was given.")


class JournalRow(Shape):
    """Size of a run's journal."""

    events: int = Field(description="Number of events.")
    bytes: int | None = Field(description="Stored size; null: the run started before sizes were recorded.")
    is_large: bool = Field(
        description="The journal is large and the run has not ended: continue it as new before it runs much longer."
    )


def trouble_of(run: Run, ending: Any) -> dict[str, Any] | None:
    """Return a run's failure from `ending`, its last event's payload; None if it didn't fail."""
    if run.state != State.FAILED:
        return None
    failure = ending if isinstance(ending, dict) else {"message": "" if ending is None else str(ending)}
    return {"code": run.error_code or "failed", "message": "", **failure}


def cancellation_of(run: Run, ending: Any) -> Cancellation | None:
    """Return a run's cancellation from `ending`; None if it wasn't cancelled or no reason is recorded."""
    said = ending if run.state == State.CANCELLED and isinstance(ending, dict) else {}
    by, why = said.get("asked_by"), said.get("justification")
    return Cancellation(by=by, why=why) if isinstance(by, str) and isinstance(why, str) else None
