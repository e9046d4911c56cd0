"""What somebody says of a version or a ramp: the API's bodies, and the console's forms."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from runs.services.bodies import SteerBody, Tag

Version = Annotated[str, Field(min_length=1, max_length=40, description="Such as 2.0.0.")]
Share = Annotated[
    Decimal,
    Field(gt=0, le=100, decimal_places=2, strict=False, description="Per cent of the starts, to the hundredth."),
]
Bound = Annotated[int, Field(ge=1, le=100, description="Per cent of the runs that it began on the newer version.")]


class RampBody(SteerBody):
    """Starts by the agent's name go over from one version to another: a share of them, those with one of these tags, or
    both. It halts by itself above a bound; null: whatever the figure is."""

    agent: Annotated[str, Field(min_length=1, max_length=64)]
    from_version: Version
    to_version: Version
    share: Share | None = None
    tags: Annotated[list[Tag], Field(min_length=1, max_length=50)] | None = None
    failed: Bound | None = 5
    rejected: Bound | None = 20
    stopped: Bound | None = 5
    at_least: Annotated[int, Field(ge=1, le=1000, description="Not before it began so many on the newer version.")] = 20


class RampActBody(SteerBody):
    """With `revision`, that of the ramp as it was seen, nothing is done where it is another by now."""

    revision: Annotated[int, Field(ge=1)] | None = None


class RaiseBody(RampActBody):
    """More starts go to the newer version."""

    share: Share
