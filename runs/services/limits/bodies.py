"""What somebody says of a limit, a breaker or a priority: the API's bodies, and the console's forms."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runs.engine.limits import LONGEST_KEY, MOST, Rule
from runs.services.bodies import SteerBody

Key = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY, description="Such as tool:charge or tag:tenant:acme.")]


class KeyBody(SteerBody):
    """What is meant."""

    key: Key


class LimitBody(KeyBody):
    """What counts for a key from now on, all of it; what is null or left out isn't limited."""

    per_minute: Annotated[int, Field(ge=1, le=MOST["per_minute"])] | None = None
    burst: Annotated[int, Field(ge=1, le=MOST["burst"])] | None = None
    at_once: Annotated[int, Field(ge=1, le=MOST["at_once"])] | None = None
    breaker: Annotated[int, Field(ge=1, le=MOST["breaker"])] | None = Field(
        default=None, description="The share of tries, per cent, whose failing opens the circuit breaker."
    )
    rest: Annotated[int, Field(ge=1, le=MOST["rest"])] | None = Field(
        default=None, description="For how many seconds it stays open before one try finds out; 30."
    )
    weight: Annotated[int, Field(ge=1, le=MOST["weight"])] | None = None

    @property
    def rule(self) -> Rule:
        return Rule(self.per_minute, self.burst, self.at_once, self.breaker, self.rest, self.weight)


class PriorityBody(SteerBody):
    """How urgent a run is: 0 unless given."""

    priority: Annotated[int, Field(ge=-100, le=100)]
