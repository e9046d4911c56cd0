"""Claims on approvals."""

from __future__ import annotations

import pgtrigger
from django.db import models

from approvals.models import Approval
from approvals.queue_models import ends_once


class Claim(models.Model):
    """A person's claim on an approval. `until` is extended while it lasts; ended rows stay. A lapsed claim is marked by
    the next act; until then `until` says so. Not part of the record and without code: nothing is decided by it."""

    class Why(models.TextChoices):
        LET_GO = "let go"
        TAKEN = "taken over"
        SAID = "said"  # they voted, or a deputy did
        CLOSED = "closed"  # with the case
        LAPSED = "lapsed"

    id = models.BigAutoField(primary_key=True)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="claims")
    person = models.BigIntegerField(help_text="The account.")
    by = models.TextField(help_text="Its name at that time.")
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
