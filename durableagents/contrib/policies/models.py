"""Rows of policy versions. A new version ends the previous one; a retired policy has no version in force."""

# Each row has a code (ledger/codes.py). Each change to the set of policies in force adds a revision with a digest of
# the set (`PolicyRevision`). If rows are added, changed or removed outside the application, the digest doesn't match,
# and calls stop for an operator.

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import pgtrigger
from django.db import models
from django.db.models.functions import Lower

from ledger.models import Coded, Json


class Policy(Coded):
    """One version of a policy.

    `agent` and `tool` are empty for any; `condition` is an expression (conditions.py) or empty, and `kinds` tells how
    the names in it are compared. `queue` and `within_seconds` apply to the effect `require`."""

    class Effect(models.TextChoices):
        ALLOW = "allow"
        REQUIRE = "require"
        DENY = "deny"

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    version = models.IntegerField()
    agent = models.TextField(blank=True, default="")
    tool = models.TextField(blank=True, default="")
    condition = models.TextField(blank=True, default="")
    kinds = Json(default=dict)
    effect = models.TextField(choices=Effect.choices)
    queue = models.TextField(blank=True, default="")
    within_seconds = models.IntegerField(default=0)
    rule = models.TextField(help_text="Explanation for people and agents.")
    proof = Json(null=True, help_text="Proof required to approve; empty: the queue's requirement.")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.TextField(blank=True, default="")

    class Meta:
        db_table = "approvals_policy"
        constraints = [
            models.UniqueConstraint(
                Lower("name"), condition=models.Q(ended_at__isnull=True), name="approvals_policy_one_in_force"
            ),
            models.UniqueConstraint(Lower("name"), "version", name="approvals_policy_version_once"),
        ]
        triggers = [
            pgtrigger.Protect(
                name="stays_ended", operation=pgtrigger.Update, condition=pgtrigger.Q(old__ended_at__isnull=False)
            ),
            pgtrigger.Protect(name="stays", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def is_in_force(self) -> bool:
        return self.ended_at is None

    def as_record(self) -> dict[str, Any]:
        """Return the version's values for a record."""
        return ({} if self.proof is None else {"proof": self.proof}) | {
            "name": self.name,
            "version": self.version,
            "agent": self.agent,
            "tool": self.tool,
            "condition": self.condition,
            "effect": str(self.effect),
            "queue": self.queue,
            "within_seconds": self.within_seconds,
            "rule": self.rule,
        }


def digest(rows: Iterable[Policy]) -> str:
    codes = sorted([row.name, row.version, bytes(row.code or b"").hex()] for row in rows)
    return hashlib.sha256(json.dumps(codes, separators=(",", ":")).encode()).hexdigest()
