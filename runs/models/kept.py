"""What is kept of runs beside their rows: the state at their consistent cuts, and what requests were answered."""

from __future__ import annotations

from django.db import models

from ledger.models import append_only


class Checkpoint(models.Model):
    """A snapshot at a consistent cut: state is plain data, no call is in flight."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    generation = models.SmallIntegerField()
    node = models.TextField()
    visit = models.IntegerField()
    schema_version = models.SmallIntegerField(default=1)
    fingerprint = models.TextField()
    state = models.BinaryField()
    checksum = models.BinaryField(max_length=32)
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()


class IdempotencyRecord(models.Model):
    """The answer to a request that carried an Idempotency-Key; it commits with what the request did, and is kept for
    ever."""

    id = models.BigAutoField(primary_key=True)
    principal = models.TextField()
    key = models.TextField()
    body_hash = models.BinaryField(max_length=32)
    status = models.SmallIntegerField()
    body = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["principal", "key"], name="runs_idempotency_once")]
