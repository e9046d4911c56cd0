"""Rows of queues, limits, deputies and escalations.

They are closed, removed or ended, never deleted. Each has a code (ledger/codes.py), so forged rows grant no decision.
"""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models.functions import Lower

from ledger.models import Coded, Json, append_only


class Queue(Coded):
    """A queue at which questions are asked, and the role (a group) whose holders decide them."""

    class State(models.TextChoices):
        OPEN = "open"
        CLOSED = "closed"
        REMOVED = "removed"

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    title = models.TextField()
    role = models.TextField()
    state = models.TextField(choices=State.choices, default=State.OPEN)
    currency = models.TextField(default="USD", help_text="Of its limits.")
    needs_amount = models.BooleanField(
        default=False, help_text="People with a limit may not decide requests without an amount."
    )
    proof = Json(null=True, help_text="Proof required to approve, and above which amount or risk; empty: none.")
    reasons = Json(null=True, help_text="Short reasons offered to the people who decide; empty: none.")
    again = Json(null=True, help_text="Limits of standing approvals; empty: none may be given.")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(Lower("name"), name="approvals_queue_one_of_name")]

    def __str__(self) -> str:
        return self.name


def ends_once(column: str) -> pgtrigger.Protect:
    ended = pgtrigger.Q(**{f"old__{column}__isnull": False})
    return pgtrigger.Protect(name="stays_ended", operation=pgtrigger.Update, condition=ended)


class Limit(Coded):
    """The highest amount that a person (or each holder of the role without a limit of their own) may approve alone.

    A new limit ends the previous one.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="limits")
    person = models.BigIntegerField(null=True, help_text="The account; empty: the limit of the role.")
    most = models.DecimalField(max_digits=24, decimal_places=6, null=True, help_text="Empty: no limit.")
    currency = models.TextField()
    set_by = models.TextField()
    set_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "person"],
                condition=models.Q(ended_at__isnull=True),
                nulls_distinct=False,
                name="approvals_limit_one_of_person",
            ),
            # An ended row can't be inserted again with its old code.
            models.UniqueConstraint(
                fields=["queue", "person", "set_at"], nulls_distinct=False, name="approvals_limit_once"
            ),
        ]
        triggers = [ends_once("ended_at")]

    def __str__(self) -> str:
        return f"{self.most} {self.currency}"


class Deputy(Coded):
    """A person who decides on behalf of a principal during a period, at one queue or all of the principal's."""

    id = models.BigAutoField(primary_key=True)
    principal = models.BigIntegerField(help_text="The account that is represented.")
    deputy = models.BigIntegerField(help_text="The account that decides.")
    queue = models.ForeignKey(Queue, null=True, on_delete=models.PROTECT, related_name="deputies")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.TextField()
    set_by = models.TextField()
    made_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            # An ended row can't be inserted again with its old code.
            models.UniqueConstraint(fields=["principal", "made_at"], name="approvals_deputy_once")
        ]
        indexes = [
            models.Index(
                fields=["deputy", "ends_at"], condition=models.Q(revoked_at__isnull=True), name="approvals_deputy_of"
            ),
            models.Index(
                fields=["principal", "ends_at"],
                condition=models.Q(revoked_at__isnull=True),
                name="approvals_deputy_for",
            ),
        ]
        triggers = [ends_once("revoked_at")]

    def __str__(self) -> str:
        return f"{self.deputy} for {self.principal}"


class Escalation(Coded):
    """A question's escalation to a further queue, whose people may decide it too. `n` counts from 1. Append-only."""

    id = models.BigAutoField(primary_key=True)
    approval = models.ForeignKey("approvals.Approval", on_delete=models.PROTECT, related_name="escalations")
    n = models.SmallIntegerField()
    run_id = models.UUIDField()
    queue = models.TextField()
    cause = models.TextField(help_text="timeout, or away: everybody who decides there was absent.")
    deadline = models.DateTimeField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["approval", "n"], name="approvals_escalated_once")]
        indexes = [models.Index(fields=["run_id"], name="approvals_escalated_of_run")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.approval_id} to {self.queue}"
