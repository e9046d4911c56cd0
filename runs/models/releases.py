"""Rows of schedules and cached reads."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.db import models

from ledger.chain import microseconds
from ledger.contents import ContentJson
from ledger.models import append_only


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
    """The outcome of one planned time of a schedule; unique, so that nothing starts twice."""

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


class CachedRead(models.Model):
    """A cached answer. `code` covers the row, so that it can't be forged."""

    key = models.BinaryField(primary_key=True, max_length=32, help_text="A keyed digest of tool, arguments and scope.")
    tool = models.TextField()
    run_id = models.UUIDField(help_text="The run whose call made it, so that it can be forgotten with that run.")
    slot = models.TextField()
    at = models.DateTimeField(help_text="When that call began.")
    expires_at = models.DateTimeField()
    size = models.IntegerField()
    sealed = models.BinaryField()
    code = models.BinaryField()

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="runs_cachedread_by_end"),
            models.Index(fields=["run_id"], name="runs_cachedread_by_run"),
        ]

    def coded(self) -> dict[str, Any]:
        """Return all values that are relied on."""
        return coded(
            self.key,
            self.tool,
            str(self.run_id),
            self.slot,
            microseconds(self.at),
            microseconds(self.expires_at),
            self.sealed,
        )


def coded(
    key: bytes | memoryview, tool: str, run_id: str, slot: str, at: int, expires_at: int, sealed: bytes | memoryview
) -> dict[str, Any]:
    """Return the same from single values."""
    return {
        "key": bytes(key).hex(),
        "tool": tool,
        "run": run_id,
        "slot": slot,
        "at": at,
        "expires_at": expires_at,
        "sealed": bytes(sealed).hex(),
    }
