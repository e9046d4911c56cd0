"""What helps to settle an unknown outcome, as documented."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from ledger.web.shapes import Shape
from runs.services.bodies import Verdict


class SimilarRow(Shape):
    """An earlier call of the same tool of this agent that somebody settled."""

    run: UUID
    verdict: Verdict
    by: str
    at: datetime
    about: str | None = Field(description="Null also for whoever may not read that run's payloads.")
    why: str


class DoubtRow(Shape):
    """A call of the run whose outcome is unknown."""

    wait_id: UUID
    tool: str
    slot: str
    needs_two: bool = Field(description="Whether two people settle it.")
    can_ask: bool = Field(
        description="Whether the other side can be asked once more, by the tool's hook, and isn't already."
    )
    link: str | None = Field(description="Where the other system shows it, as the tool's author says.")
    similar: dict[str, int] = Field(description="Of the newest like it: how many came to which verdict.")
    cases: list[SimilarRow]


class Doubts(Shape):
    """The unknown outcomes of a run, the oldest first; at most twenty."""

    results: list[DoubtRow]
