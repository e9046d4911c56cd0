"""Which policies are in force: a number that grows with each change of them. Whoever keeps policies writes it."""

from __future__ import annotations

from django.db import models

from ledger.models import append_only


class PolicyRevision(models.Model):
    """The policies in force from here on. The newest counts: an intent that was judged by another one is refused
    (runs/sql/policies.sql). `live` is how many there are, `policies` a digest of which. Append-only."""

    revision = models.BigIntegerField(primary_key=True)
    live = models.IntegerField()
    policies = models.TextField()
    set_by = models.TextField()
    at = models.DateTimeField()
    code = models.BinaryField(null=True, help_text="Who wrote it had the installation's key: see ledger/codes.py.")

    class Meta:
        triggers = append_only()

    def __str__(self) -> str:
        return f"policies {self.revision}"
