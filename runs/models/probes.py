"""What was seen of the other sides of keyed tools: whether they honour keys."""

from __future__ import annotations

from typing import Any

from django.db import models

from ledger.chain import microseconds
from ledger.models import append_only


class Probe(models.Model):
    """One probe of a tool, as it was then. A new one is a new row: the newest of a tool counts."""

    class Verdict(models.TextChoices):
        HONOURS = "honours_keys"
        IGNORES = "ignores_keys"
        REFUSES = "refuses_repeats"
        HOOK_DENIES = "hook_denies"
        UNCLEAR = "unclear"

    id = models.BigAutoField(primary_key=True)
    tool = models.TextField()
    agent = models.TextField()
    version = models.TextField()
    made_of = models.TextField(help_text="The digest of the tool that was probed.")
    verdict = models.TextField(choices=Verdict.choices)
    told = models.TextField(help_text="What was seen, in a few sentences.")
    evidence = models.JSONField(help_text="Each call: its key, what came of it, and the digest of its answer.")
    evidence_digest = models.TextField()
    by = models.TextField()
    host = models.TextField()
    at = models.DateTimeField()
    expires_at = models.DateTimeField()
    code = models.BinaryField()

    class Meta:
        indexes = [models.Index(fields=["tool", "agent", "made_of", "-id"], name="runs_probe_newest")]
        constraints = [
            models.CheckConstraint(condition=models.Q(expires_at__gt=models.F("at")), name="runs_probe_ends_later")
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.tool}: {self.verdict}"

    def coded(self) -> dict[str, Any]:
        """What the row's code is of: a row that nobody with the key wrote certifies nothing."""
        names = ("tool", "agent", "version", "made_of", "verdict", "told", "evidence_digest", "by", "host")
        said: dict[str, Any] = {name: getattr(self, name) for name in names}
        return said | {"at": microseconds(self.at), "expires_at": microseconds(self.expires_at)}
