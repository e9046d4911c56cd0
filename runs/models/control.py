"""Model of policy revisions."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models

from ledger.models import Coded, append_only

# `ready_at` of runs that were put aside: a time in the distant future, so that they are not claimed.
NEVER = datetime(9000, 1, 1, tzinfo=UTC)


class PolicyRevision(Coded):
    """A revision of the policies in force.
    Only the newest one is in force: intents that were evaluated against another revision are refused
    (runs/sql/policies.sql). `live` is the number of policies, and `policies` is their digest. Append-only."""

    revision = models.BigIntegerField(primary_key=True)
    live = models.IntegerField()
    policies = models.TextField()
    set_by = models.TextField()
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()

    def __str__(self) -> str:
        return f"policies {self.revision}"
