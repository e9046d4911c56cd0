"""A budget as people write it: in an agent's definition, in a start's body, in a default. One shape for all."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ledger.codes import plain_zero
from runs.engine.budget.amounts import Caps
from runs.engine.budget.prices import A_MILLION

Count = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
Tokens = Annotated[int, Field(ge=0, le=10**15, strict=True)]
Usd = Annotated[Decimal, Field(ge=0, le=10**9, decimal_places=6, allow_inf_nan=False), AfterValidator(plain_zero)]
A_CENTURY = 100 * 366 * 86_400


class Budget(BaseModel):
    """The most that a run may use of each; what isn't given has no cap of its own.

    `usd` is in US dollars, to the millionth; `tokens_in` and `tokens_out` are of all its model requests together;
    `model_calls`, `tool_calls` and `steps` are counts; `wall_seconds` is the time from its start, waits included. A run
    that comes to a cap stands still until somebody raises it. Raises ValidationError for what is negative, and for a
    resource or a currency that nobody counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd: Usd | None = None
    tokens_in: Tokens | None = None
    tokens_out: Tokens | None = None
    model_calls: Count | None = None
    tool_calls: Count | None = None
    steps: Count | None = None
    wall_seconds: Annotated[int, Field(ge=1, le=A_CENTURY, strict=True)] | None = None

    def caps(self) -> Caps:
        """What is counted step by step; the time is another matter."""
        return Caps(
            steps=self.steps,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            tool_calls=self.tool_calls,
            model_calls=self.model_calls,
            usd_micro=None if self.usd is None else int(self.usd * A_MILLION),
        )

    @property
    def time(self) -> timedelta | None:
        """How long it may take."""
        return None if self.wall_seconds is None else timedelta(seconds=self.wall_seconds)

    def stated(self) -> dict[str, Decimal | int]:
        """What is given, by its name."""
        return {name: value for name, value in self if value is not None}

    def tightest(self, other: Budget) -> Budget:
        """Of each resource the smaller of two caps, this budget's and the `other`'s."""
        both = {name: (value, getattr(other, name)) for name, value in self}
        least = {name: min((v for v in pair if v is not None), default=None) for name, pair in both.items()}
        return Budget.model_construct(**least)  # both were checked

    def filled_from(self, defaults: Budget) -> Budget:
        """Where nothing is given, what the `defaults` say."""
        known = {name: getattr(defaults, name) if value is None else value for name, value in self}
        return Budget.model_construct(**known)


NO_BUDGET = Budget()


def usd_of(micro: int) -> str:
    """Millionths of a dollar as dollars, with as many places as it takes and at least cents."""
    whole, rest = divmod(abs(micro), A_MILLION)
    places = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micro < 0 else ''}{whole}.{places}"
