"""What the API tells of halts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from ledger.web.shapes import Page, Shape

Kind = Literal["halt", "quarantine", "starts"]
Scope = Literal["all", "tag", "agent", "version", "tool", "provider"]


class HaltedRow(Shape):
    """The halt that a run is under."""

    kind: Kind
    scope: Scope
    key: str
    by: str
    why: str
    since: datetime


class HearingRow(Shape):
    """A worker that has not confirmed. `silent`: it gives no sign of life, so nobody knows what it does."""

    worker: UUID
    name: str = Field(description="Host and process.")
    says: Literal["stopping", "unheard", "silent"]
    running: int = Field(description="Of its runs in the scope, those that have not come to their next step.")


class InFlightRow(Shape):
    """A call that had left when its scope was halted. It may come back, and is recorded then."""

    run: UUID
    slot: str
    what: str
    since: datetime
    timeout: float = Field(description="Seconds, after which it is given up.")
    worker: str


class UnknownName(Shape):
    """A name that a halt gives and nothing here has, now or before: it holds what comes under it, and nothing yet."""

    scope: Scope
    key: str
    like: list[str] = Field(description="Names of that kind that there are, the most alike first.")


class HaltRow(Shape):
    """Nothing begins in its scope."""

    id: UUID
    kind: Kind
    scope: Scope
    key: str
    refuse: bool = Field(description="New starts are refused, and not only kept waiting.")
    state: Literal["requested", "confirmed", "lifted"] = Field(
        description="Requested until every living worker has said that it begins nothing there any more, and that its "
        "runs there stand still but for calls in flight."
    )
    is_staged: bool = Field(description="It is lifted for some.")
    share: str = Field(description="Per cent of the runs that it lets through.")
    agents: list[str] = Field(description="Whose runs it lets through.")
    tags: list[str] = Field(description="Runs with one of these it lets through.")
    revision: int
    by: str
    why: str
    since: datetime
    changed_by: str
    changed_at: datetime
    unconfirmed: list[HearingRow]
    unknown: list[UnknownName] = Field(
        description="Of what it halts, or lets through: names that nothing here has, perhaps misspelt. Of tags "
        "only whoever sees every run is told."
    )
    in_flight: list[InFlightRow] | None = Field(description="Null: it would tell of runs that aren't yours.")
    held: int | None = Field(description="Runs that are put aside for it, up to 10,001; null: as in_flight.")
    genuine: bool = Field(description="False: a row was not written by this installation. It holds all the same.")


class HaltPage(Page):
    results: list[HaltRow]
