"""Limits of standing approvals, and the kind of question that they can answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

from approvals.bodies import MAX_TIMES
from approvals.policy import Sum
from approvals.sameness import keyed
from runs.engine.gating.documents import DOCUMENTS
from runs.engine.gating.fields import Amount, agent_of, amount_in, same_fields_in, sameness
from runs.engine.gating.stages import is_staged

MAX_DAYS = 366


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of standing approvals: calls, days from the decision, and total amount.

    A total of None means the amount that the giver may approve at once."""

    times: int
    days: int
    most: Decimal | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the limits as plain data, for the queue's row."""
        fields: dict[str, Any] = {"times": self.times, "days": self.days}
        return fields if self.most is None else fields | {"most": format(self.most, "f")}


def bounds_in(values: Any) -> Bounds | None:
    """Parse a queue's limits; None if standing approvals are not allowed, or the limits can't be read."""
    if not isinstance(values, Mapping):
        return None
    times, days, most = values.get("times"), values.get("days"), values.get("most")
    if type(times) is not int or type(days) is not int or not 1 <= times <= MAX_TIMES or not 1 <= days <= MAX_DAYS:
        return None
    try:
        sum_ = None if most is None else Decimal(most)
    except (DecimalException, TypeError, ValueError):
        return None
    return None if sum_ is not None and not (sum_.is_finite() and sum_ >= 0) else Bounds(times, days, sum_)


@dataclass(frozen=True, slots=True)
class SameCall:
    """A call that a standing approval can cover.

    It has the names of the fields that must be identical, their digest, and the call's amount, if any."""

    same: str
    unkeyed: str  # the digest computed without a key, as in old rows
    fields: list[str]
    tool: str
    agent: str
    amount: Sum | None


def same_call_in(plan: Any) -> SameCall:
    """Build a SameCall from a plan. Raises ValueError with the reason why the call can't have a standing approval."""
    digest = sameness(plan)
    if is_staged(plan):
        raise ValueError("it needs several people")
    if "proof" in plan:
        raise ValueError("it needs proof of who approves")
    if plan.get(DOCUMENTS):
        raise ValueError("it has documents that the decider must see")
    if isinstance(amount := amount_in(plan), str):
        raise ValueError(f"its amount can't be read ({amount})")
    if isinstance(amount, Amount) and amount.value != round(amount.value, 6):
        raise ValueError("its amount has more than six decimals")
    total = Sum(amount.value, amount.currency) if isinstance(amount, Amount) else None
    return SameCall(keyed(digest), digest, same_fields_in(plan), str(plan["tool"]), agent_of(plan), total)


def read_same_call(stored: bytes) -> SameCall:
    """Build a SameCall from a stored plan. Numbers keep their notation, as in `sameness_of`. Raises ValueError."""
    try:
        return same_call_in(json.loads(stored))
    except RecursionError:
        raise ValueError("its plan can't be read") from None
