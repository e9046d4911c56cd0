"""The model of probes."""

from __future__ import annotations

from django.db import models

from ledger.models import Coded, append_only


class Probe(Coded):
    """One probe of a tool. Each probe is a new row, and the newest one of a tool counts."""

    FREE = frozenset({"evidence"})  # excluded from the code, because the code covers its digest

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
    made_of = models.TextField(help_text="Digest of the probed tool.")
    verdict = models.TextField(choices=Verdict.choices)
    told = models.TextField(help_text="Finding, in a few sentences.")
    evidence = models.JSONField(help_text="Each call: its key, outcome, and the digest of its answer.")
    evidence_digest = models.TextField()
    by = models.TextField()
    host = models.TextField()
    at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "runs_probe"
        indexes = [models.Index(fields=["tool", "agent", "made_of", "-id"], name="runs_probe_newest")]
        constraints = [
            models.CheckConstraint(condition=models.Q(expires_at__gt=models.F("at")), name="runs_probe_ends_later")
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.tool}: {self.verdict}"
