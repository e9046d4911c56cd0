"""The port by which the engine asks whether a try may go out: no permit, nothing leaves.

A permit is for one try. It is asked for before the intent, and given back when the answer is here; what became of the
try is told with it, for the circuit breakers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Why = Literal["rate", "at_once", "asked", "breaker", "changed"]


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave for one try under some keys. `is_held`: it has to be given back; `probed`: those of its keys whose breaker
    is open, and goes by what becomes of this try."""

    id: str
    keys: tuple[str, ...]
    is_held: bool = False
    probed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Not now: because of which key, why, and for how many seconds at least."""

    key: str
    why: Why
    seconds: float


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a try. `served`: None where it says nothing about the other side. `retry_after`: for how many
    seconds that asked to be left alone."""

    served: bool | None = None
    error: str = ""
    retry_after: float = 0.0


NOTHING = Told()


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks: for a try of which call. `lasts`: after how many seconds it is over at the latest; `earlier`: how often
    it was sent away before; `patience`: how many seconds it would wait in place."""

    run_id: str
    slot: str
    lasts: float
    earlier: int = 0
    patience: float = 2.0


class Limits:
    """Nothing is limited. A worker's are in runs/services/limits/permits.py."""

    def concerns(self, keys: tuple[str, ...]) -> bool:
        """Whether anything has to be asked before a try under these keys. Costs nothing."""
        return False

    async def take(self, keys: tuple[str, ...], asked: Asked) -> Permit | Refused:
        """A permit, after a wait in place if it is short."""
        return Permit("", keys)

    def give_back(self, permit: Permit) -> None:
        """It is over, or never began."""

    def tell(self, keys: tuple[str, ...], permit: Permit | None, told: Told) -> None:
        """What became of a try."""
