"""What is said and asked about forks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from ledger.web.shapes import Shape
from runs.engine.budget.limits import Budget
from runs.services.bodies import SteerBody

MOST_ANSWERS = 100


class ForkBody(SteerBody):
    """Begin a new run at the beginning of a visit of this one."""

    visit: Annotated[int, Field(description="See GET …/fork; 1 is the first.")]
    version: Annotated[str, Field(max_length=50)] | None = Field(
        default=None, description="Of the same agent; left out: the run's own."
    )
    state: Any = Field(default=None, description="In the place of the recorded one; left out: that.")
    what_if: bool = Field(default=False, description="Nothing is sent: its calls are answered from the record.")
    answers: Annotated[dict[str, Any], Field(max_length=MOST_ANSWERS)] | None = Field(
        default=None, description="Of a what-if: what a tool gives that isn't on record, by its name."
    )
    if_effects: int | None = Field(
        default=None, description="How many effects you have seen after that point: with others by now, 409."
    )
    budget: Budget | None = None


class PointRow(Shape):
    """The beginning of a visit."""

    visit: int
    node: str
    seq: int = Field(description="The event that it began with.")
    at: datetime
    problem: str = Field(description="Why no fork can begin here; empty: one can.")


class DoneRow(Shape):
    """An effect that a run had after a point: what a fork may do again."""

    run: UUID
    slot: str
    attempt: int
    tool: str = Field(description="`child:NAME` of a run that was started as a step.")
    at: str
    outcome: Literal["committed", "open"] = Field(description="open: nobody knows what came of it.")
    external_id: str | None
    arguments: Any
    has_result: bool = Field(description="Whether what came of it can stand for the same call.")
    is_verified: bool = Field(description="false: a row alone tells of it, its event can't be read.")


class ForkPreview(Shape):
    """Where a run can be begun again, and, at a visit, what would happen again. Each of these effects stops the fork
    until a person has said what becomes of that call."""

    points: list[PointRow] = Field(description="The newest 500 visits.")
    visit: int | None
    state: Any = Field(description="With which the visit began; null without one.")
    effects: list[DoneRow]
    all_are_asked_about: bool = Field(
        description="Nobody can say that these are all: every call with an effect is asked about."
    )
