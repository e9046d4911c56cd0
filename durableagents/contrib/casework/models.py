"""The model of claims on approvals."""

from __future__ import annotations

import pgtrigger
from django.db import models

from approvals.models import Approval
from approvals.queue_models import ends_once


class Claim(models.Model):
    """A person's claim on an approval. Rows of ended claims are kept.

    Extending a claim moves `until`. A lapsed claim gets its `ended_at` from the next act on the approval. Before
    that, only `until` shows that it has lapsed. Claims are not part of the record, and their rows have no code, because
    they decide nothing.
    """

    class Why(models.TextChoices):
        LET_GO = "let go"
        TAKEN = "taken over"
        SAID = "said"  # the person voted, or a deputy did
        CLOSED = "closed"  # ended together with the case
        LAPSED = "lapsed"

    id = models.BigAutoField(primary_key=True)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="claims")
    person = models.BigIntegerField(help_text="The account.")
    by = models.TextField(help_text="The account's name at that time.")
    role = models.TextField()
    at = models.DateTimeField()
    until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.TextField(blank=True, default="")
    why = models.TextField(blank=True, default="", help_text="How it ended.")

    class Meta:
        db_table = "approvals_claim"
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "person"],
                condition=models.Q(ended_at__isnull=True),
                name="approvals_claim_one_each",
            )
        ]
        indexes = [
            models.Index(fields=["person"], condition=models.Q(ended_at__isnull=True), name="approvals_claim_of"),
        ]
        triggers = [
            ends_once("ended_at"),
            pgtrigger.ReadOnly(name="claim_is_frozen", fields=["approval", "person", "by", "role", "at"]),
        ]

    def __str__(self) -> str:
        return f"{self.by} until {self.until}"
