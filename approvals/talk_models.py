"""Rows of inquiries and delegations.

They are ended, never deleted; each has a code (ledger/codes.py), so forged rows grant no decision.
"""

from __future__ import annotations

from django.db import models

from approvals.queue_models import Coded, ends_once
from ledger.contents import ContentText


class Inquiry(Coded):
    """A decider's inquiry to a named person, and its outcome. `n` numbers the inquiries of a slot."""

    id = models.BigAutoField(primary_key=True)
    approval = models.ForeignKey("approvals.Approval", on_delete=models.PROTECT, related_name="inquiries")
    run_id = models.UUIDField()
    n = models.IntegerField()
    asker = models.BigIntegerField(help_text="The account that asks.")
    by = models.TextField()
    role = models.TextField()
    person = models.BigIntegerField(help_text="The account that is asked.")
    to = models.TextField(help_text="Its name then.")
    question = ContentText()
    stops_clock = models.BooleanField(default=False)
    at = models.DateTimeField()
    outcome = models.TextField(blank=True, default="", help_text="answered, withdrawn; empty: it is open.")
    answer = ContentText(blank=True, default="")
    ended_by = models.TextField(blank=True, default="")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "inquiries"
        constraints = [models.UniqueConstraint(fields=["approval", "n"], name="approvals_inquiry_once")]
        indexes = [
            models.Index(fields=["run_id"], name="approvals_inquiry_of_run"),
            models.Index(fields=["person", "-at"], name="approvals_inquiry_to"),
        ]
        triggers = [ends_once("ended_at")]

    def __str__(self) -> str:
        return f"{self.by} to {self.to}"


class Delegation(Coded):
    """A decider's delegation of just this question to a named person. `n` numbers the delegations of a slot."""

    id = models.BigAutoField(primary_key=True)
    approval = models.ForeignKey("approvals.Approval", on_delete=models.PROTECT, related_name="delegations")
    run_id = models.UUIDField()
    n = models.IntegerField()
    principal = models.BigIntegerField(help_text="The account that is represented.")
    by = models.TextField()
    role = models.TextField()
    deputy = models.BigIntegerField(help_text="The account that decides.")
    to = models.TextField(help_text="Its name then.")
    reason = ContentText()
    made_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval", "n"], name="approvals_delegation_once"),
            models.UniqueConstraint(
                fields=["approval", "principal", "deputy"],
                condition=models.Q(ended_at__isnull=True),
                name="approvals_delegation_one_of_two",
            ),
        ]
        indexes = [
            models.Index(fields=["run_id"], name="approvals_delegation_of_run"),
            models.Index(fields=["deputy", "-made_at"], name="approvals_delegation_to"),
        ]
        triggers = [ends_once("ended_at")]

    def __str__(self) -> str:
        return f"{self.to} for {self.by}"
