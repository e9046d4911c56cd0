"""What a model's tokens cost: unit prices as data, and a request's cost in whole millionths of a dollar."""

from __future__ import annotations

from dataclasses import dataclass

A_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """A row of the price table. `id` is its version; prices are millionths of a dollar for a million tokens."""

    id: int
    model: str
    usd_micro_in: int
    usd_micro_out: int

    def cost(self, tokens_in: int, tokens_out: int) -> int:
        """Millionths of a dollar, rounded up: what is set aside is never too little by rounding."""
        return -(-(tokens_in * self.usd_micro_in + tokens_out * self.usd_micro_out) // A_MILLION)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes: the `model` that is asked, and what it costs; None: nobody has said."""

    model: str
    price: Price | None = None

    @property
    def version(self) -> int | None:
        """The row of the price table."""
        return None if self.price is None else self.price.id

    def cost(self, tokens_in: int, tokens_out: int) -> int | None:
        """Millionths of a dollar; None where the model has no price."""
        return None if self.price is None else self.price.cost(tokens_in, tokens_out)
