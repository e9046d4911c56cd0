"""What all workers share: limits of tools, models, providers, agents and tags, circuit breakers, and who holds a
permit."""

from __future__ import annotations

from django.db import models


class Limit(models.Model):
    """What is said of one key, such as `tool:charge`, and how it stands. The functions in runs/sql/limits.sql
    change it, under its row's lock."""

    class Breaker(models.TextChoices):
        CLOSED = "closed"
        OPEN = "open"

    key = models.TextField(primary_key=True)
    given = models.JSONField(null=True, help_text="What a person has set; null: nobody has.")
    given_by = models.TextField(blank=True, default="", db_default="")
    given_at = models.DateTimeField(null=True)
    declared = models.JSONField(null=True, help_text="What the installation says.")
    of_tool = models.JSONField(null=True, help_text="What the tool's own code says.")
    # The bucket.
    tokens = models.FloatField(default=0.0, db_default=0.0)
    filled_at = models.DateTimeField(null=True)
    held_until = models.DateTimeField(null=True, help_text="The other side asked to be left alone until then.")
    parked_until = models.DateTimeField(null=True, help_text="When the last of those comes back that were sent away.")
    # The circuit breaker.
    breaker = models.TextField(choices=Breaker.choices, default=Breaker.CLOSED, db_default=Breaker.CLOSED)
    is_by_hand = models.BooleanField(default=False, db_default=False)
    opened_at = models.DateTimeField(null=True)
    rest_until = models.DateTimeField(null=True, help_text="From then on one try at a time finds out. Null: nobody.")
    openings = models.IntegerField(default=0, db_default=0)
    window_at = models.DateTimeField(null=True)
    ok = models.IntegerField(default=0, db_default=0)
    failed = models.IntegerField(default=0, db_default=0)
    ok_before = models.IntegerField(default=0, db_default=0)
    failed_before = models.IntegerField(default=0, db_default=0)
    last_error = models.TextField(blank=True, default="", db_default="")
    last_error_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["key"], name="runs_limit_pattern", condition=models.Q(key__endswith="*"))]

    def __str__(self) -> str:
        return self.key


class Permit(models.Model):
    """One try that is under way, of a key whose number is limited, or the probe of an open breaker."""

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
        indexes = [models.Index(fields=["key"], name="runs_permit_of_key")]


class LimitLine(models.Model):
    """A worker whose first in line waits in place for a permit."""

    pk = models.CompositePrimaryKey("key", "worker")
    key = models.TextField()
    worker = models.UUIDField()
    since = models.DateTimeField()
    seen_until = models.DateTimeField()
    waiting = models.IntegerField(default=1)
