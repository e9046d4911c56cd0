"""Policies, legal holds, and the register of archives.

All but `Pending` are append-only or written by the owner."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.indexes import GinIndex
from django.db import models

from ledger.models import Coded, Json, append_only


class Rule(Coded):
    """Base class of policies and holds: a rule for the runs of an agent and with a tag (empty: any)."""

    id = models.BigAutoField(primary_key=True)
    agent = models.TextField(blank=True, default="")
    tag = models.TextField(blank=True, default="")
    reason = models.TextField()
    set_by = models.TextField()
    at = models.DateTimeField()
    KIND: ClassVar[str]

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.KIND} {self.pk}"


class Act(Coded):
    """Base class of rows that end a rule or restore a run. The primary key is the id of the rule or archive."""

    reason = models.TextField()
    by = models.TextField()
    at = models.DateTimeField()

    class Meta:
        abstract = True


class Policy(Rule):
    """A retention policy: the days until matching runs lose their old checkpoints, are archived, and until their
    archive is deleted (null: never).

    If several policies match a run, the one that keeps it longest counts."""

    effects = models.TextField(blank=True, default="", help_text="A replay class: runs that made such a call.")
    state = models.TextField(blank=True, default="")
    checkpoint_days = models.IntegerField(null=True, help_text="After the run's end.")
    archive_days = models.IntegerField(null=True, help_text="After the run's end.")
    delete_days = models.IntegerField(null=True, help_text="After the archiving.")
    KIND = "retention policy"

    class Meta:
        triggers = append_only()
        constraints = [
            models.CheckConstraint(condition=models.Q(checkpoint_days__gte=1), name="retention_policy_checkpoint_days"),
            models.CheckConstraint(condition=models.Q(archive_days__gte=1), name="retention_policy_archive_days"),
            models.CheckConstraint(condition=models.Q(delete_days__gte=1), name="retention_policy_delete_days"),
        ]


class PolicyEnd(Act):
    """The end of a policy, after which it no longer applies."""

    policy = models.OneToOneField(Policy, primary_key=True, on_delete=models.PROTECT, related_name="end")

    class Meta:
        triggers = append_only()


class Hold(Rule):
    """A legal hold, on one run with all runs related to it, or on all runs that match every given field."""

    run_id = models.UUIDField(null=True)
    business_key = models.TextField(blank=True, default="")
    created_from = models.DateTimeField(null=True)
    created_to = models.DateTimeField(null=True)
    KIND = "legal hold"

    class Meta:
        triggers = append_only()


class HoldEnd(Act):
    """The lifting of a hold."""

    hold = models.OneToOneField(Hold, primary_key=True, on_delete=models.PROTECT, related_name="end")

    class Meta:
        triggers = append_only()


class Archive(Coded):
    """A run in an archive file.

    All runs of a family share one file. If a run has several rows, the newest one counts.
    """

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    family = models.UUIDField(help_text="The run that all runs of the file come from.")
    agent = models.TextField()
    version = models.TextField()
    state = models.TextField()
    creator = models.BigIntegerField(null=True)
    tags = Json(default=list)
    effects = Json(default=list, help_text="Replay classes of its calls.")
    business_key = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    seq = models.BigIntegerField(help_text="The last event.")
    chain = models.BinaryField(max_length=32, help_text="Its hash.")
    rows = Json(help_text="Number of rows by table, with a checksum of their text.")
    policy = models.BigIntegerField(help_text="The policy that made the run due.")
    place = models.TextField(help_text="Name of the file in the storage.")
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of the file.")
    size = models.BigIntegerField(help_text="Size of the file in bytes.")
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()
        indexes = [
            models.Index(fields=["run_id", "-id"], name="retention_archive_of_run"),
            models.Index(fields=["family"], name="retention_archive_family"),
            models.Index(fields=["-at", "-id"], name="retention_archive_newest"),
            models.Index(
                fields=["business_key", "-created_at", "-run_id"],
                condition=models.Q(business_key__gt=""),
                name="retention_archive_key",
            ),
            GinIndex(fields=["tags"], opclasses=["jsonb_path_ops"], name="retention_archive_tags"),
        ]

    def __str__(self) -> str:
        return f"archive of run {self.run_id}"


class Restoration(Act):
    """The restoration of an archived run: its rows are in the database again."""

    archive = models.OneToOneField(Archive, primary_key=True, on_delete=models.PROTECT, related_name="restoration")

    class Meta:
        triggers = append_only()


class Deletion(Coded):
    """The deletion of a run's archive by a policy."""

    archive = models.OneToOneField(Archive, primary_key=True, on_delete=models.PROTECT, related_name="deletion")
    policy = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()


class CheckpointExpiry(Coded):
    """The removal of a run's oldest checkpoints by a policy. A run can have several, one for each batch."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    last_seq = models.BigIntegerField(help_text="The event of the newest of these checkpoints.")
    number = models.IntegerField(help_text="Number of checkpoints removed.")
    policy = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()
        indexes = [models.Index(fields=["run_id", "id"], name="retention_expiry_of_run")]

    def __str__(self) -> str:
        return f"expiry of checkpoints of run {self.run_id}"


class Pending(models.Model):
    """A run with rows, or with a file of a deleted archive, that still have to be removed."""

    run_id = models.UUIDField(primary_key=True)
    at = models.DateTimeField()


class Round(models.Model):
    """One round of archiving and deleting. `expired` counts runs that lost their old checkpoints."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    archived = models.IntegerField()
    deleted = models.IntegerField()
    expired = models.IntegerField(default=0)
    problems = Json(default=list)

    class Meta:
        triggers = append_only()


class Allowance(models.Model):
    """The database owner's permission for workers to remove runs that ended at least `days` days ago.

    Without a row, only the owner may remove runs.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    days = models.IntegerField()
    at = models.DateTimeField()


class RunTable(models.Model):
    """A table with rows of runs. `migrate` writes these rows; the functions in sql/ touch no other tables."""

    name = models.TextField(primary_key=True)
    condition = models.TextField(help_text="SQL for the rows of run $1.")
    ordering = models.TextField()
    n = models.IntegerField(help_text="Order in which rows are inserted.")
    is_bulk = models.BooleanField(help_text="Large tables, removed in batches after all others.")
