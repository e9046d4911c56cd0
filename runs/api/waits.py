"""What a run waits for, as documented."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from ledger.web.shapes import Shape
from runs.models import State, Wait

Status = Literal["running", "waiting", "paused", "completed", "failed", "cancelled"]


class ChildRow(Shape):
    """The child that a run waits for, as it is now."""

    id: UUID
    state: State
    status: Status
    need: Literal["approval", "input", "reconcile", "operator", "budget", "resume"] | None = Field(
        description="What a person has to do before it goes on; null: nothing."
    )
    need_at: UUID | None = Field(description="The run that stands still for it: the child, or one that it waits for.")


class ProposedRow(Shape):
    """What one person says became of a call, where two people settle that."""

    n: int = Field(description="Its number: whoever agrees sends it as `agrees_with`.")
    seq: int = Field(description="Its event.")
    at: datetime
    by: str
    verdict: Literal["happened", "did_not"]
    receipt: Any = Field(description="Null also for whoever may not read the run's payloads.")
    justification: str
    news: int | None = Field(description="An event that told more of the call since: it counts no more.")


class UpstreamRow(Shape):
    """What the other side was asked of an unknown outcome, and what it answered last."""

    asked_by: str
    asked_at: datetime
    is_asked: bool = Field(description="Whether the answer is still to come.")
    answer: Literal["happened", "did_not", "nothing"] | None
    result: Any = Field(description="Of what happened; null also for whoever may not read the run's payloads.")
    told_at: datetime | None


class WaitRow(Shape):
    """One thing that a run waits for."""

    id: UUID
    kind: Wait.Kind
    since: datetime
    deadline: datetime
    detail: dict[str, Any]
    slot: str
    child: ChildRow | None = Field(description="Of a wait for a child, where its row can be read.")
    proposed: ProposedRow | None = Field(
        description="Of an unknown outcome that two people settle: the first one's word."
    )
    upstream: UpstreamRow | None = Field(description="Of an unknown outcome, where somebody had the other side asked.")
