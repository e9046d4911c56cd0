"""Findings about duplicate effects, stored reports, and samples of the database's size.

All tables except `DetectorPlace` and `PendingCheck` are append-only."""

from __future__ import annotations

from django.db import models

from ledger.models import append_only


class Finding(models.Model):
    """A recorded fact that suggests a duplicate effect. A finding is open until it has a closure."""

    class Kind(models.TextChoices):
        CONTRADICTION = "contradicting_receipt", "Contradicting receipt"
        TWO_IDS = "two_external_ids", "Two external ids under one key"
        DIFFERENT_ANSWER = "different_answer", "Repeat answered differently"
        KEY_REJECTED = "key_rejected", "Key rejected"
        PROBE = "probe", "Probe"
        PERSON = "person", "Reported by a person"

    id = models.BigAutoField(primary_key=True)
    kind = models.TextField(choices=Kind.choices)
    key = models.TextField(unique=True, help_text="Key of the fact, so that it is stored only once.")
    run_id = models.UUIDField(null=True)
    seq = models.BigIntegerField(null=True, help_text="The journal event of the fact.")
    slot = models.TextField(blank=True, default="")
    attempt = models.SmallIntegerField(null=True)
    tool = models.TextField(blank=True, default="")
    what = models.TextField(help_text="The recorded facts in one sentence.")
    fact_at = models.DateTimeField(help_text="When it was recorded.")
    found_at = models.DateTimeField()
    by = models.TextField(blank=True, default="", help_text="Person who reported it; empty: the detector.")

    class Meta:
        indexes = [
            models.Index(fields=["-fact_at", "-id"], name="reports_finding_by_time"),
            models.Index(fields=["run_id"], name="reports_finding_by_run"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return self.key


class Closure(models.Model):
    """The closure of a finding: whether the effect happened twice, and the reason."""

    class Verdict(models.TextChoices):
        DUPLICATE = "duplicate", "It happened twice"
        NO_DUPLICATE = "no_duplicate", "The effect did not happen twice"

    finding = models.OneToOneField(Finding, on_delete=models.PROTECT, primary_key=True, related_name="closure")
    verdict = models.TextField(choices=Verdict.choices)
    root_cause = models.TextField()
    by = models.TextField()
    person = models.BigIntegerField(null=True)
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()

    def __str__(self) -> str:
        return self.verdict


class DetectorPlace(models.Model):
    """The position up to which the detector has read, in one row.

    Everything older has been examined. If the row is missing, everything is read again."""

    id = models.SmallIntegerField(primary_key=True)
    checked_at = models.DateTimeField(null=True)
    event_at = models.DateTimeField(null=True, help_text="Events before this one have been examined.")
    entry = models.BigIntegerField(default=0, help_text="Ledger entries up to this one have been examined.")
    probe = models.BigIntegerField(default=0, help_text="Probes up to this one have been examined.")
    is_behind = models.BooleanField(default=True, help_text="Whether more was left than one pass may read.")


class PendingCheck(models.Model):
    """An event to examine later, because the call has no recorded answer yet, or its content is unavailable."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()


class StorageSample(models.Model):
    """The size of a table, with indexes and TOAST, on a day. An empty name means the whole database."""

    pk = models.CompositePrimaryKey("day", "table_name")
    day = models.DateField()
    table_name = models.TextField()
    bytes = models.BigIntegerField()

    class Meta:
        triggers = append_only()


class StoredReport(models.Model):
    """A report made by schedule: its JSON with a digest. `problem` says why a report could not be made."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    schedule = models.TextField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    made_at = models.DateTimeField()
    content = models.TextField()
    sha256 = models.TextField()
    problem = models.TextField(blank=True, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["schedule", "ends_at", "name"], name="reports_stored_once")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.name} until {self.ends_at}"


class Mailing(models.Model):
    """One attempt to mail a period's reports to a recipient."""

    id = models.BigAutoField(primary_key=True)
    schedule = models.TextField()
    ends_at = models.DateTimeField()
    recipient = models.TextField()
    at = models.DateTimeField()
    outcome = models.TextField()
    why = models.TextField(blank=True, default="")

    class Meta:
        indexes = [models.Index(fields=["schedule", "ends_at", "recipient"], name="reports_mailing_of")]
        triggers = append_only()
