"""What requests were answered that came with an Idempotency-Key."""

from __future__ import annotations

from django.db import models


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
