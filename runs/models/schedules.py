"""Starts by the clock, and what became of each time that was planned."""

from __future__ import annotations

from uuid import uuid4

from django.db import models

from ledger.models import append_only


class Schedule(models.Model):
    """Runs of an agent that start by a cron line, as whoever said last with what: agent and input."""

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
    input = models.JSONField()
    tags = models.JSONField(default=list)
    budget = models.JSONField(null=True)
    most = models.JSONField(null=True, help_text="What the key may give at most that set it; null: anything.")
    cron = models.TextField()
    zone = models.TextField(default="UTC")
    missed = models.TextField(choices=Missed.choices, default=Missed.SKIP)
    overlap = models.TextField(choices=Overlap.choices, default=Overlap.SKIP)
    owner = models.BigIntegerField(help_text="The account that it starts runs as: whoever set it last.")
    set_by = models.TextField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    next_at = models.DateTimeField(null=True, help_text="The planned time that is to come, or is due. Null: none.")
    is_paused = models.BooleanField(default=False)
    stopped = models.TextField(blank=True, default="", help_text="Why it starts nothing any more, in words.")
    trouble = models.TextField(blank=True, default="", help_text="Why what is due has not started yet, in words.")
    deleted_at = models.DateTimeField(null=True)

    class Meta:
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
    """What became of one planned time of a schedule: it is there once, so nothing starts for it twice."""

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
    run_id = models.UUIDField(null=True, help_text="The run that it started, or that lived and kept it from starting.")
    why = models.TextField(blank=True, default="")
    n = models.IntegerField(default=1, help_text="Of missed ones: how many planned times up to this one.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["schedule", "planned_at"], name="runs_firing_once")]
        triggers = append_only()
