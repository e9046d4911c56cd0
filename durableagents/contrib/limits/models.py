"""Limits of calls: their rules and state, the calls in progress, and the workers that wait."""

from __future__ import annotations

from django.db import models


class Limit(models.Model):
    """Rule and state of one key, such as `tool:charge`. sql/limits.sql changes it under the lock of its row."""

    class Breaker(models.TextChoices):
        CLOSED = "closed"
        OPEN = "open"

    key = models.TextField(primary_key=True)
    given = models.JSONField(null=True, help_text="Rule set by a person; null: none.")
    given_by = models.TextField(blank=True, default="", db_default="")
    given_at = models.DateTimeField(null=True)
    declared = models.JSONField(null=True, help_text="Rule of the installation's settings.")
    of_tool = models.JSONField(null=True, help_text="Rule in the tool's own code.")
    # The bucket.
    tokens = models.FloatField(default=0.0, db_default=0.0)
    filled_at = models.DateTimeField(null=True)
    held_until = models.DateTimeField(null=True, help_text="Upstream asked for a pause until then.")
    parked_until = models.DateTimeField(null=True, help_text="When the last parked call comes back.")
    # The circuit breaker.
    breaker = models.TextField(choices=Breaker.choices, default=Breaker.CLOSED, db_default=Breaker.CLOSED)
    is_by_hand = models.BooleanField(default=False, db_default=False)
    opened_at = models.DateTimeField(null=True)
    rest_until = models.DateTimeField(
        null=True, help_text="From then on one try at a time tests upstream; null: none does."
    )
    openings = models.IntegerField(default=0, db_default=0)
    window_at = models.DateTimeField(null=True)
    ok = models.IntegerField(default=0, db_default=0)
    failed = models.IntegerField(default=0, db_default=0)
    ok_before = models.IntegerField(default=0, db_default=0)
    failed_before = models.IntegerField(default=0, db_default=0)
    last_error = models.TextField(blank=True, default="", db_default="")
    last_error_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_limit"
        indexes = [models.Index(fields=["key"], name="runs_limit_pattern", condition=models.Q(key__endswith="*"))]

    def __str__(self) -> str:
        return self.key


class Permit(models.Model):
    """A try in progress under a key with limited concurrency, or the test call of an open breaker."""

    pk = models.CompositePrimaryKey("id", "key")
    id = models.UUIDField()
    key = models.TextField()
    worker = models.UUIDField()
    run_id = models.UUIDField()
    slot = models.TextField()
    taken_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    is_probe = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "runs_permit"
        indexes = [models.Index(fields=["key"], name="runs_permit_of_key")]


class LimitLine(models.Model):
    """A worker with calls that wait in place for a permit of a key."""

    pk = models.CompositePrimaryKey("key", "worker")
    key = models.TextField()
    worker = models.UUIDField()
    since = models.DateTimeField()
    seen_until = models.DateTimeField()
    waiting = models.IntegerField(default=1)

    class Meta:
        db_table = "runs_limitline"
