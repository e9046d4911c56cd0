"""What somebody says of a halt: the API's bodies, and the console's forms."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from runs.services.bodies import SteerBody, Tag

# Typed out by whoever halts the whole installation.
ALL_OF_IT = "halt everything"

Scope = Literal["all", "tag", "agent", "version", "tool", "provider"]
Kind = Literal["halt", "quarantine", "starts"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=50)]
Share = Annotated[
    Decimal, Field(ge=0, lt=100, decimal_places=2, strict=False, description="Per cent of the runs, to the hundredth.")
]


class HaltBody(SteerBody):
    """Nothing begins in a scope from now on, until it is lifted. A quarantine is of a tool or a version, and takes new
    starts of the version too; `starts` stops new starts of an agent alone."""

    kind: Kind = "halt"
    scope: Scope
    key: Annotated[
        str, Field(max_length=300, description="Which: a tag, an agent, name@version, a tool, a provider.")
    ] = ""
    refuse: bool = Field(False, description="Of `starts`: refuse new starts (409) instead of letting them wait.")
    confirm: str = Field("", max_length=100, description=f"For the whole installation: {ALL_OF_IT!r}.")


class StageBody(SteerBody):
    """Lift a halt for some: for a share of the runs in its scope, for agents, for runs with a tag. It is all that
    counts from then on; with nothing given the halt is whole again."""

    share: Share | None = None
    agents: Names | None = None
    tags: Annotated[list[Tag], Field(max_length=50)] | None = None
    revision: int | None = Field(None, ge=0, description="As you saw it: refused where it was changed since.")


class LiftBody(SteerBody):
    """Lift all of it."""

    revision: int | None = Field(None, ge=0, description="As you saw it: refused where it was changed since.")
