"""Schedules, and the results of their planned times."""

from __future__ import annotations

from uuid import uuid4

from django.db import models

from ledger.contents import ContentJson
from ledger.models import append_only
from ledger.protected import protect


class Schedule(models.Model):
    """A cron schedule of an agent's runs, as last set."""

    class Missed(models.TextChoices):
        SKIP = "skip"
        ONCE = "once"
        ALL = "all"

    class Overlap(models.TextChoices):
        SKIP = "skip"
        QUEUE = "queue"
        REPLACE = "replace"
        ALLOW = "allow"

    id = models.UUIDField(primary_key=True, default=uuid4)
    name = models.TextField()
    agent = models.TextField(help_text="A name (its newest version), or name@version.")
    input = ContentJson(run="")
    tags = models.JSONField(default=list)
    budget = models.JSONField(null=True)
    most = models.JSONField(
        null=True, help_text="The budget limit of the API key that set it; null if there is no limit."
    )
    cron = models.TextField()
    zone = models.TextField(default="UTC")
    missed = models.TextField(choices=Missed.choices, default=Missed.SKIP)
    overlap = models.TextField(choices=Overlap.choices, default=Overlap.SKIP)
    owner = models.BigIntegerField(help_text="The account whose rights its runs start with.")
    set_by = models.TextField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    next_at = models.DateTimeField(null=True, help_text="The planned time that is due or comes next. Null: none.")
    is_paused = models.BooleanField(default=False)
    stopped = models.TextField(blank=True, default="", help_text="Reason why the schedule no longer starts runs.")
    trouble = models.TextField(blank=True, default="", help_text="Reason why a due run has not started yet.")
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_schedule"
        indexes = [
            models.Index(fields=["next_at"], condition=models.Q(next_at__isnull=False), name="runs_schedule_due"),
            models.Index(
                fields=["-created_at", "-id"], condition=models.Q(deleted_at__isnull=True), name="runs_schedule_by_time"
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(next_at__isnull=True)
                | models.Q(is_paused=False, stopped="", deleted_at__isnull=True),
                name="runs_schedule_rests",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Firing(models.Model):
    """The result of one planned time of a schedule.

    There is only one per planned time, so that no run is started twice.
    """

    class Outcome(models.TextChoices):
        STARTED = "started"
        SKIPPED = "skipped"
        MISSED = "missed"
        REFUSED = "refused"

    id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(Schedule, on_delete=models.PROTECT, related_name="firings")
    planned_at = models.DateTimeField()
    at = models.DateTimeField()
    outcome = models.TextField(choices=Outcome.choices)
    run_id = models.UUIDField(null=True, help_text="The run that it started, or the active run that prevented a start.")
    why = models.TextField(blank=True, default="")
    n = models.IntegerField(default=1, help_text="If missed: the number of planned times up to this one.")

    class Meta:
        db_table = "runs_firing"
        constraints = [models.UniqueConstraint(fields=["schedule", "planned_at"], name="runs_firing_once")]
        triggers = append_only()


# A schedule starts runs with its owner's rights, so each row has a code.
PROTECTED = protect(Schedule, "schedule", named_by="name", free=frozenset({"updated_at", "trouble"}))
