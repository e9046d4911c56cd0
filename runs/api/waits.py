"""Rows of what a run waits for."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from ledger.web.fields import ActorName, Reason
from ledger.web.shapes import Shape
from runs.models import State, Wait


class ChildRow(Shape):
    """The current state of the child run that a run waits for."""

    id: UUID = Field(description="Id of the child run.")
    state: State = Field(description="State of the child run.")
    need: Literal["approval", "input", "reconcile", "operator", "budget", "resume"] | None = Field(
        description="Action by a person that it needs to continue; null: none."
    )
    need_at: UUID | None = Field(description="The run that needs it: the child, or a run that the child waits for.")


class ProposedRow(Shape):
    """One person's proposed verdict on a call that two people must settle."""

    n: int = Field(description="Number to send as `agrees_with` when agreeing.")
    seq: int = Field(description="Event of the proposal.")
    at: datetime = Field(description="Time of the proposal.")
    by: ActorName
    verdict: Literal["happened", "did_not"] = Field(description="Proposed verdict.")
    receipt: Any = Field(description="Also null if the caller may not read the run's payloads.")
    justification: Reason
    news: int | None = Field(
        description="A later event with new information about the call; the proposal no longer counts."
    )


class UpstreamRow(Shape):
    """A query to the upstream system about an unknown outcome, and its last answer."""

    asked_by: str = Field(description="Actor who requested the query.")
    asked_at: datetime = Field(description="Time of the request.")
    is_asked: bool = Field(description="Whether the answer is pending.")
    answer: Literal["happened", "did_not", "nothing"] | None = Field(
        description="Answer of the upstream system; null: none yet."
    )
    result: Any = Field(
        description="Result of a call that happened; also null if the caller may not read the run's payloads."
    )
    told_at: datetime | None = Field(description="Time of the answer; null: none yet.")


class WaitRow(Shape):
    """A wait of a run."""

    id: UUID = Field(description="Id of the wait.")
    kind: Wait.Kind = Field(description="Type of the wait.")
    since: datetime = Field(description="Time since which the run waits.")
    deadline: datetime = Field(description="Time when the wait ends at the latest.")
    detail: dict[str, Any] = Field(description="Details by type, such as the question of an approval.")
    slot: str = Field(description="Step that waits.")
    child: ChildRow | None = Field(description="For a wait for a child run: its state, if it can be read.")
    proposed: ProposedRow | None = Field(
        description="For an unknown outcome that two people must settle: the first person's verdict."
    )
    upstream: UpstreamRow | None = Field(
        description="For an unknown outcome: the query to the upstream system, if one was made."
    )
