"""Rows of standing approvals: given with a decision, used by later questions, taken back. All are append-only and coded
(ledger/codes.py), so forged rows let nothing through and restore nothing used up or taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

from django.db import models

from approvals.policy import Sum
from approvals.queue_models import Coded
from approvals.sameness import keyed
from ledger.models import Json, append_only
from runs.engine.gating.documents import DOCUMENTS
from runs.engine.gating.fields import Amount, agent_of, amount_in, same_fields_in, sameness
from runs.engine.gating.stages import is_staged

MAX_TIMES, MAX_DAYS = 1000, 366


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of standing approvals: times, days from giving, sum of all; None: what the giver may approve at once."""

    times: int
    days: int
    most: Decimal | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the queue's row."""
        told: dict[str, Any] = {"times": self.times, "days": self.days}
        return told if self.most is None else told | {"most": format(self.most, "f")}


def bounds_in(told: Any) -> Bounds | None:
    """Parse a queue's bounds; None if not allowed or unreadable."""
    if not isinstance(told, Mapping):
        return None
    times, days, most = told.get("times"), told.get("days"), told.get("most")
    if type(times) is not int or type(days) is not int or not 1 <= times <= MAX_TIMES or not 1 <= days <= MAX_DAYS:
        return None
    try:
        sum_ = None if most is None else Decimal(most)
    except (DecimalException, TypeError, ValueError):
        return None
    return None if sum_ is not None and not (sum_.is_finite() and sum_ >= 0) else Bounds(times, days, sum_)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for a standing approval: the digest and the fields of what must be the same, and any amount."""

    same: str
    unkeyed: str  # as in rows from before the digest was keyed
    fields: list[str]
    tool: str
    agent: str
    amount: Sum | None


def asked_in(plan: Any) -> Asked:
    """Return a plan as Asked. Raises ValueError with the reason why there can be no standing approval for it."""
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
    told = Sum(amount.value, amount.currency) if isinstance(amount, Amount) else None
    return Asked(keyed(digest), digest, same_fields_in(plan), str(plan["tool"]), agent_of(plan), told)


def asked_of(stored: bytes) -> Asked:
    """Return a stored plan as Asked, with numbers as written, as in `sameness_of`. Raises ValueError."""
    try:
        return asked_in(json.loads(stored))
    except RecursionError:
        raise ValueError("its plan can't be read") from None


class StandingGrant(Coded):
    """A person's approval of questions that are the same as `approval`: `same` is the digest of what must be, `fields`
    the arguments that must be. It covers `count` calls, `most` in all, for one run or all of an agent, `until` then."""

    id = models.BigAutoField(primary_key=True)
    approval = models.OneToOneField("approvals.Approval", on_delete=models.PROTECT, related_name="standing_grant")
    run_id = models.UUIDField(help_text="Where it was given.")
    queue = models.TextField()
    tool = models.TextField()
    agent = models.TextField(help_text="Its name, whatever its version.")
    is_of_run = models.BooleanField(help_text="It counts in that run alone.")
    same = models.TextField()
    fields = Json(help_text="The arguments that have to be the same.")
    count = models.IntegerField()
    most = models.DecimalField(max_digits=36, decimal_places=6, null=True, help_text="Of all uses together.")
    currency = models.TextField(blank=True, default="")
    until = models.DateTimeField()
    person = models.BigIntegerField(help_text="The account of the person who gave it.")
    by = models.TextField()
    role = models.TextField()
    reason = models.TextField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["same", "until"], name="approvals_grant_of_same"),
            models.Index(fields=["until"], name="approvals_grant_until"),
            models.Index(fields=["run_id"], name="approvals_grant_of_run"),
            models.Index(fields=["queue", "-at", "-id"], name="approvals_grant_of_queue"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"standing grant {self.pk}"

    def is_about(self, queue: str, asked: Asked) -> bool:
        is_same = self.same in (asked.same, asked.unkeyed)
        return is_same and (self.queue, self.tool, self.agent) == (queue, asked.tool, asked.agent)


class StandingUse(Coded):
    """The `n`-th question answered by a standing approval, with its amount."""

    id = models.BigAutoField(primary_key=True)
    grant = models.ForeignKey(StandingGrant, on_delete=models.PROTECT, related_name="uses")
    n = models.IntegerField()
    approval = models.OneToOneField("approvals.Approval", on_delete=models.PROTECT, related_name="standing_use")
    run_id = models.UUIDField()
    amount = models.DecimalField(max_digits=36, decimal_places=6, null=True)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["grant", "n"], name="approvals_use_once")]
        indexes = [models.Index(fields=["run_id"], name="approvals_use_of_run")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"use {self.n} of standing grant {self.grant_id}"


class StandingEnd(Coded):
    """The end of a standing approval, with author and reason."""

    grant = models.OneToOneField(StandingGrant, primary_key=True, on_delete=models.PROTECT, related_name="end")
    person = models.BigIntegerField(null=True)
    by = models.TextField()
    role = models.TextField()
    reason = models.TextField()
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()

    def __str__(self) -> str:
        return f"end of standing grant {self.grant_id}"
