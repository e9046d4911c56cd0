"""Counters, facts to count, and the newest figures. No row holds content or names a person."""

from __future__ import annotations

from django.db import models


class Fact(models.Model):
    """Something to count.

    A trigger writes it in the transaction of the event itself (sql/facts.sql), and the collector removes it in the
    transaction that counts it. So it is counted exactly once, in whatever order they commit."""

    class Kind(models.TextChoices):
        EVENT = "event"
        WAIT = "wait"
        INCIDENT = "incident"
        RECOVERING = "recovering"  # a counted incident whose run has made no progress yet

    id = models.BigAutoField(primary_key=True)
    kind = models.TextField(choices=Kind.choices)
    run_id = models.UUIDField()
    seq = models.BigIntegerField(null=True, help_text="The event.")
    name = models.TextField(blank=True, default="", help_text="Kind of the event or of the wait.")
    queue = models.TextField(blank=True, default="", help_text="The queue or role that was asked.")
    seconds = models.FloatField(null=True, help_text="Duration of the wait.")

    class Meta:
        indexes = [models.Index(fields=["kind", "id"], name="metrics_fact_by_kind")]


class Counter(models.Model):
    """A total that only grows. Retention and erasure of runs don't reduce it."""

    pk = models.CompositePrimaryKey("name", "labels", "part")
    name = models.TextField()
    labels = models.TextField(help_text="Values of the labels, as a JSON list.")
    part = models.SmallIntegerField(help_text="For a histogram, the bucket's number, or -1 for the sum; otherwise 0.")
    value = models.FloatField()


class Snapshot(models.Model):
    """The newest current figures, in one row."""

    id = models.SmallIntegerField(primary_key=True)
    at = models.DateTimeField()
    samples = models.JSONField(help_text="Name, values of labels, and value.")
    ended = models.JSONField(
        default=list, help_text="The same figures for runs that have ended, which are counted less often."
    )
    ended_at = models.DateTimeField(null=True)
    seconds = models.FloatField(default=0.0, help_text="Duration of the inventory.")
    ended_seconds = models.FloatField(default=0.0, help_text="Duration of the count.")
    # Ledger entries up to `entry` are counted. When `next_entry` was read, all active writers had transaction ids below
    # `next_xid`. Once those transactions have ended, the entries up to `next_entry` are complete.
    entry = models.BigIntegerField(default=0)
    next_entry = models.BigIntegerField(default=0)
    next_xid = models.BigIntegerField(default=0)
