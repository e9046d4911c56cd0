"""What is said and asked about forks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from ledger.web.bodies import Strict
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
    outcome: Literal["committed", "open", "undone"] = Field(
        description="open: nobody knows what came of it; undone: by the run itself."
    )
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
    hidden: bool = Field(description="The caller has no right to read state and arguments.")


class VerdictBody(Strict):
    """What one effect counts as: happened (the same call is answered by what it gave), unknown (a person is asked at
    the call), did_not (it may be done)."""

    slot: Annotated[str, Field(max_length=200)]
    attempt: int = 0
    counts_as: Literal["happened", "unknown", "did_not"]
    run: Annotated[str, Field(max_length=36)] = Field(default="", description="Needed where several runs' are listed.")
    result: Any = Field(default=None, description="What it gave, where the record doesn't have that.")
    sender_is_gone: bool = Field(
        default=False, description="Attests that nothing runs any more of a worker that was given up without proof."
    )


class StartAgainBody(SteerBody):
    """Begin a new run from this one's input."""

    audit: Annotated[list[VerdictBody], Field(max_length=2000)] = []
    version: Annotated[str, Field(max_length=50)] | None = Field(
        default=None, description="Of the same agent; left out: the run's own."
    )
    input: Any = Field(default=None, description="Only where the recorded one can't be believed.")
    budget: Budget | None = None


class StartAgainPreview(Shape):
    """What is left of a run's record. Each effect has to be decided before a run is started from its input again."""

    has_ended: bool = Field(description="false: it is cancelled by that, with its effects left as they are.")
    input: Any
    input_is_sound: bool = Field(description="false: it has to be given.")
    effects: list[DoneRow]
    problems: list[str] = Field(description="What is wrong with its record, the first 50.")
    all_are_asked_about: bool = Field(
        description="Nobody can say that these are all: every further call with an effect is asked about."
    )
    hidden: bool = Field(description="The caller has no right to read input and arguments.")
