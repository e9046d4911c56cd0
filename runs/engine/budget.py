"""Usage, caps and prices of runs. Money is in whole millionths of a US dollar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ledger import events as e
from ledger.codes import plain_zero


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a step or a whole run. `usd_micro` is in millionths of a US dollar."""

    steps: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tool_calls: int = 0
    model_calls: int = 0
    usd_micro: int = 0

    # The operators are written out per field for speed: every step adds and subtracts usage.
    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.steps + other.steps,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.tool_calls + other.tool_calls,
            self.model_calls + other.model_calls,
            self.usd_micro + other.usd_micro,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.steps - other.steps,
            self.tokens_in - other.tokens_in,
            self.tokens_out - other.tokens_out,
            self.tool_calls - other.tool_calls,
            self.model_calls - other.model_calls,
            self.usd_micro - other.usd_micro,
        )

    @classmethod
    def of(cls, row: object) -> Self:
        return cls(*(getattr(row, f.name) for f in fields(cls)))

    def stated(self) -> dict[str, int]:
        return {f.name: amount for f in fields(self) if (amount := getattr(self, f.name))}


NOTHING_USED = Usage()
A_CALL = Usage(steps=1, tool_calls=1)
RESOURCES = tuple(f.name for f in fields(Usage))


@dataclass(frozen=True, slots=True)
class Caps:
    """The maximum that a run may use of each resource; None: no limit."""

    steps: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tool_calls: int | None = None
    model_calls: int | None = None
    usd_micro: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the caps given by a mapping. Raises TypeError for an unknown resource."""
        return cls(**values)

    def stated(self) -> dict[str, int]:
        return {name: most for name in RESOURCES if (most := getattr(self, name)) is not None}


UNLIMITED = Caps()


@dataclass(frozen=True, slots=True)
class Remaining:
    """The unused and unreserved rest of each resource; None: no limit. `usd_micro` is in millionths of a dollar."""

    steps: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tool_calls: int | None = None
    model_calls: int | None = None
    usd_micro: int | None = None

    @classmethod
    def of(cls, caps: Caps, used: Usage) -> Self:
        return cls(**{name: max(most - getattr(used, name), 0) for name, most in caps.stated().items()})


@dataclass(frozen=True, slots=True)
class Breach:
    """A cap that new work would exceed. `used` and `reserved` are already counted; `wanted` would be added."""

    resource: str
    most: int
    used: int
    reserved: int
    wanted: int

    @property
    def enough(self) -> int:
        return self.used + self.reserved + self.wanted


def breaches(caps: Caps, used: Usage, reserved: Usage, wanted: Usage) -> Iterator[Breach]:
    """Yield the caps that `wanted` would exceed.

    A run over a cap may not begin anything that counts against that cap.
    """
    for name in RESOURCES:
        most, more = getattr(caps, name), getattr(wanted, name)
        if most is None or not more:
            continue
        now, aside = getattr(used, name), getattr(reserved, name)
        if now + aside + more > most:
            yield Breach(name, most, now, aside, more)


def first_breach(caps: Caps, used: Usage, reserved: Usage, wanted: Usage) -> Breach | None:
    return next(breaches(caps, used, reserved, wanted), None)


A_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """A row of the price table. `id` is its version; prices are in millionths of a dollar per million tokens."""

    id: int
    model: str
    usd_micro_in: int
    usd_micro_out: int

    def cost(self, tokens_in: int, tokens_out: int) -> int:
        """Return the cost in millionths of a dollar, rounded up so that a reservation is never too small."""
        return -(-(tokens_in * self.usd_micro_in + tokens_out * self.usd_micro_out) // A_MILLION)


@dataclass(frozen=True, slots=True)
class Route:
    """A request's model and its price (None if unknown)."""

    model: str
    price: Price | None = None

    @property
    def version(self) -> int | None:
        return None if self.price is None else self.price.id

    def cost(self, tokens_in: int, tokens_out: int) -> int | None:
        """Return the cost in millionths of a dollar; None if the model has no price."""
        return None if self.price is None else self.price.cost(tokens_in, tokens_out)


Count = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
Tokens = Annotated[int, Field(ge=0, le=10**15, strict=True)]
Usd = Annotated[Decimal, Field(ge=0, le=10**9, decimal_places=6, allow_inf_nan=False), AfterValidator(plain_zero)]
A_CENTURY = 100 * 366 * 86_400


class Budget(BaseModel):
    """The caps of a run; a resource that isn't given has no cap.

    `usd` is in US dollars, with six decimal places; `tokens_in` and `tokens_out` count all its model requests together;
    `model_calls`, `tool_calls` and `steps` are counts; `wall_seconds` is the time since its start, including waits. A
    run that reaches a cap stops until someone raises it. Raises ValidationError for negative values, unknown resources
    and unknown currencies.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd: Usd | None = Field(default=None, description="US dollars, with up to six decimal places.")
    tokens_in: Tokens | None = Field(default=None, description="Input tokens of all model requests.")
    tokens_out: Tokens | None = Field(default=None, description="Output tokens of all model requests.")
    model_calls: Count | None = Field(default=None, description="Number of model requests.")
    tool_calls: Count | None = Field(default=None, description="Number of tool calls.")
    steps: Count | None = Field(default=None, description="Number of steps.")
    wall_seconds: Annotated[int, Field(ge=1, le=A_CENTURY, strict=True)] | None = Field(
        default=None, description="Time since the start, including waits."
    )

    def caps(self) -> Caps:
        """Return the caps that are checked at every step; the duration is checked elsewhere."""
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
        """Return the maximum duration; None: no limit."""
        return None if self.wall_seconds is None else timedelta(seconds=self.wall_seconds)

    def stated(self) -> dict[str, Decimal | int]:
        """Return the limits that are set, by name."""
        return {name: value for name, value in self if value is not None}

    def tightest(self, other: Budget) -> Budget:
        """Return a budget with the smaller cap of this one and the `other` for each resource."""
        both = {name: (value, getattr(other, name)) for name, value in self}
        least = {name: min((v for v in pair if v is not None), default=None) for name, pair in both.items()}
        return Budget.model_construct(**least)  # both were validated already

    def filled_from(self, defaults: Budget) -> Budget:
        """Return this budget with missing caps taken from `defaults`."""
        known = {name: getattr(defaults, name) if value is None else value for name, value in self}
        return Budget.model_construct(**known)


NO_BUDGET = Budget()


def usd_of(micro: int) -> str:
    """Format millionths of a dollar as dollars, with at least two decimal places."""
    whole, rest = divmod(abs(micro), A_MILLION)
    places = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micro < 0 else ''}{whole}.{places}"


def begun_by(event: e.Event | None) -> Usage | None:
    """Return the usage that an intent reserves against the caps; None for other events."""
    match event:
        case e.ToolInvoked():
            return A_CALL
        case e.ModelRouted():
            return wanted_by(event)
        case e.ChildStarted():
            return Usage(**event.caps)
        case _:
            return None


def wanted_by(route: e.ModelRouted) -> Usage:
    return Usage(
        steps=1, model_calls=1, tokens_in=route.tokens_in, tokens_out=route.tokens_out, usd_micro=route.usd_micro or 0
    )


Call = tuple[str, int]  # slot and attempt


class Meter:
    """Usage and reservations of one run while a worker holds it."""

    def __init__(self, caps: Caps = UNLIMITED, used: Usage = NOTHING_USED, *, counts_reads: bool = False) -> None:
        self.caps, self.used = caps, used
        self.counts_reads = counts_reads  # whether a shared budget counts reads, so that each must be recorded first
        self._reserved: dict[Call, Usage] = {}
        self.reserved = NOTHING_USED  # total of all calls without a recorded outcome; stored because it is read often

    def breach(self, wanted: Usage, *, excluding: Call | None = None) -> Breach | None:
        """Return the first cap that `wanted` would exceed. The reservation of the call `excluding` is not counted."""
        others = self.reserved if excluding is None else self.reserved - self.set_aside(excluding)
        return first_breach(self.caps, self.used, others, wanted)

    def breaches(self, wanted: Usage) -> list[Breach]:
        return list(breaches(self.caps, self.used, self.reserved, wanted))

    def left(self) -> Caps:
        """Return the amount of each resource that new work may still use; None: no limit."""
        aside = self.reserved
        pairs = ((getattr(self.caps, n), getattr(self.used, n) + getattr(aside, n)) for n in Caps.__slots__)
        return Caps(*(None if most is None else max(0, most - gone) for most, gone in pairs))

    def set_aside(self, call: Call) -> Usage:
        return self._reserved.get(call, NOTHING_USED)

    def has_room_for(self, intent: e.Event) -> bool:
        """Return whether usage is reserved for the call that this intent begins."""
        return self.set_aside((intent.slot or "", intent.attempt)) != NOTHING_USED

    def reserve(self, call: Call, wanted: Usage) -> None:
        """Reserve a call's expected usage until the call is settled. A retry replaces the reservation."""
        past = self._reserved.get(call)
        self.reserved += wanted if past is None else wanted - past
        self._reserved[call] = wanted

    def release(self, call: Call) -> None:
        """Drop the reservation of a call that will not be made after all."""
        self.reserved -= self._reserved.pop(call, NOTHING_USED)

    def book(self, events: Sequence[e.Event], usage: Usage) -> None:
        """Count recorded usage: the debits among the events, and the step's own.

        Drop the settled calls' reservations.
        """
        if usage is not NOTHING_USED:
            self.used += usage
        for event in events:
            if isinstance(event, e.BudgetDebited):
                self.used += debit_of(event)
            if event.slot is not None and event.FACT in _SETTLES:
                settled = self._reserved.pop((event.slot, event.attempt), None)
                self.reserved = self.reserved if settled is None else self.reserved - settled

    def begin_visit(self) -> None:
        """Drop all reservations, because no call is in progress at the start of a visit."""
        self._reserved.clear()
        self.reserved = NOTHING_USED


# Facts that settle a call or its request. The next attempt makes a new reservation.
_SETTLES = frozenset({"result", "accepted", "debit"})


def debit_of(event: e.BudgetDebited) -> Usage:
    """Return the usage of a debit. The cost of a model without a price counts as zero."""
    return Usage(
        model_calls=event.model_calls,
        tokens_in=event.tokens_in,
        tokens_out=event.tokens_out,
        usd_micro=event.usd_micro or 0,
    )
