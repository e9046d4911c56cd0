"""How far a standing grant may go: what its queue's administrators allow, and which questions it can be about. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

from approvals.policy import Sum
from runs.engine.gate.amounts import Amount, amount_in
from runs.engine.gate.documents import DOCUMENTS
from runs.engine.gate.requirement import is_staged
from runs.engine.gate.same import agent_of, fields_in, sameness

MOST_TIMES, MOST_DAYS = 1000, 366


@dataclass(frozen=True, slots=True)
class Bounds:
    """At most so many times, so many days from when it is given, and of so much in all; None: of any sum that whoever
    gives it may approve at once."""

    times: int
    days: int
    most: Decimal | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data, as a queue keeps it."""
        told: dict[str, Any] = {"times": self.times, "days": self.days}
        return told if self.most is None else told | {"most": format(self.most, "f")}


def bounds_in(told: Any) -> Bounds | None:
    """What a queue's row says; None where it allows none, or can't be read."""
    if not isinstance(told, Mapping):
        return None
    times, days, most = told.get("times"), told.get("days"), told.get("most")
    if type(times) is not int or type(days) is not int or not 1 <= times <= MOST_TIMES or not 1 <= days <= MOST_DAYS:
        return None
    try:
        sum_ = None if most is None else Decimal(most)
    except (DecimalException, TypeError, ValueError):
        return None
    return None if sum_ is not None and not (sum_.is_finite() and sum_ >= 0) else Bounds(times, days, sum_)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question is about, for whoever would allow the same again: the digest of what has to be the same, the
    fields that have to be, and of how much it is; None where it names no amount."""

    same: str
    fields: list[str]
    tool: str
    agent: str
    amount: Sum | None


def asked_in(plan: Any) -> Asked:
    """The same of a plan. Raises ValueError, which says why nobody can allow the same as it again."""
    same = sameness(plan)
    if is_staged(plan):
        raise ValueError("several people decide it")
    if "proof" in plan:
        raise ValueError("a yes to it has to show more than that it was said")
    if plan.get(DOCUMENTS):
        raise ValueError("it shows documents, which whoever decides has to see")
    if isinstance(amount := amount_in(plan), str):
        raise ValueError(f"its amount can't be told ({amount})")
    if isinstance(amount, Amount) and amount.value != round(amount.value, 6):
        raise ValueError("its amount has more than six decimals")
    told = Sum(amount.value, amount.currency) if isinstance(amount, Amount) else None
    return Asked(same, fields_in(plan), str(plan["tool"]), agent_of(plan), told)


def asked_of(stored: bytes) -> Asked:
    """The same of a plan as it is stored, numbers as they are written there, as `sameness_of` has them. Raises
    ValueError."""
    try:
        return asked_in(json.loads(stored))
    except RecursionError:
        raise ValueError("its plan can't be read") from None
