"""What the API tells of versions and ramps."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from ledger.web.shapes import Page, Shape


class AssignedRow(Shape):
    """Where a ramp decided which version a run's start got."""

    ramp: int
    is_new: bool = Field(description="It got the newer side's.")
    why: Literal["share", "tag", "halted", "unserved", "unknown"]


class ForecastRow(Shape):
    """When the last run of a version that is under way may end."""

    earliest: datetime | None = Field(description="As such runs usually take.")
    latest: datetime | None = Field(description="As nearly all take; null: it can't be told, and `why` says why.")
    why: str
    people: int = Field(description="Runs that wait for a person, or are paused.")
    people_until: datetime | None = Field(description="The last deadline of what those wait for.")
    time_up_at: datetime | None = Field(description="When the time of all of them is up.")


class VersionRow(Shape):
    """One version of an agent."""

    version: str
    is_known: bool = Field(description="This process has it, or some process had.")
    is_closed: bool = Field(description="To new starts.")
    closed_by: str | None
    closed_at: datetime | None
    why: str | None
    served: bool = Field(description="A living worker drives its runs.")
    workers: int
    begins: int = Field(description="Of these, those that begin runs; the others only drain it.")
    living: int = Field(
        description="Of the runs that you see those that have not ended; of each state up to 10,001 are counted."
    )
    runs: dict[str, int] = Field(description="By state, each up to 10,001.")
    forecast: ForecastRow | None = Field(description="Null: none is under way, or you don't see all of them.")


class FiguresRow(Shape):
    """Of the newest runs that the ramp began on the newer version, up to 1,000."""

    begun: int
    failed: int
    rejected: int
    stopped: int


class RampRow(Shape):
    """Starts by an agent's name go over from one version to another."""

    id: int
    agent: str
    from_version: str
    to_version: str
    state: Literal["on", "halted", "rolled_back", "done"]
    share: str = Field(description="Per cent of the starts that go to the newer version.")
    tags: list[str]
    bounds: dict[str, int | None] = Field(description="Per cent above which it halts; null: whatever the figure is.")
    at_least: int = Field(description="Not before so many runs were begun on the newer version.")
    revision: int
    set_by: str
    made_at: datetime
    halted_at: datetime | None
    halted_by: dict[str, Any] | None = Field(description="The figures that halted it, for who sees all runs.")
    ended_at: datetime | None
    figures: FiguresRow | None = Field(
        description="What counts towards the bounds now; null: it is over, or you don't see all the runs it is of."
    )
    to_new: int | None = Field(description="Starts that it gave the newer version, up to 10,001; null: as figures.")
    to_old: int | None


class RampPage(Page):
    results: list[RampRow]


class VersionPage(Page):
    """An agent's versions, newest first, and the ramp that is under way."""

    results: list[VersionRow]
    ramp: RampRow | None
