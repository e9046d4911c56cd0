"""What is counted, how much of it a run may use, and when that is too much. Money is in whole millionths of a US
dollar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Usage:
    """What a step, or a whole run, uses. `usd_micro` is in millionths of a US dollar."""

    steps: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tool_calls: int = 0
    model_calls: int = 0
    usd_micro: int = 0

    # Field by field: every step adds and takes away.
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
        """What a row that has these columns counts."""
        return cls(*(getattr(row, f.name) for f in fields(cls)))

    def stated(self) -> dict[str, int]:
        """What there is of it."""
        return {f.name: amount for f in fields(self) if (amount := getattr(self, f.name))}


NOTHING_USED = Usage()
A_CALL = Usage(steps=1, tool_calls=1)
RESOURCES = tuple(f.name for f in fields(Usage))


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that a run may use of each; None: as much as it likes."""

    steps: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tool_calls: int | None = None
    model_calls: int | None = None
    usd_micro: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The caps that a mapping names. Raises TypeError for what nobody counts."""
        return cls(**values)

    def stated(self) -> dict[str, int]:
        """Those that there are."""
        return {name: most for name in RESOURCES if (most := getattr(self, name)) is not None}


UNLIMITED = Caps()


@dataclass(frozen=True, slots=True)
class Left:
    """What a run may still use of each, beyond what is used and set aside; never less than nothing. None: as much as it
    likes. `usd_micro` is in millionths of a US dollar."""

    steps: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tool_calls: int | None = None
    model_calls: int | None = None
    usd_micro: int | None = None

    @classmethod
    def of(cls, caps: Caps, used: Usage) -> Self:
        """What caps leave of what is used already."""
        return cls(**{name: max(most - getattr(used, name), 0) for name, most in caps.stated().items()})


@dataclass(frozen=True, slots=True)
class Breach:
    """A cap that something to be begun would break: `used` and `reserved` are there already, `wanted` would come."""

    resource: str
    most: int
    used: int
    reserved: int
    wanted: int

    @property
    def enough(self) -> int:
        """The least that the cap would have to be."""
        return self.used + self.reserved + self.wanted


def breaches(caps: Caps, used: Usage, reserved: Usage, wanted: Usage) -> Iterator[Breach]:
    """The caps that what is wanted would break. Who has used more than a cap by now (it was lowered, or an answer was
    longer than was set aside for it) may begin nothing that counts against it."""
    for name in RESOURCES:
        most, more = getattr(caps, name), getattr(wanted, name)
        if most is None or not more:
            continue
        now, aside = getattr(used, name), getattr(reserved, name)
        if now + aside + more > most:
            yield Breach(name, most, now, aside, more)


def first_breach(caps: Caps, used: Usage, reserved: Usage, wanted: Usage) -> Breach | None:
    """The first of them."""
    return next(breaches(caps, used, reserved, wanted), None)
