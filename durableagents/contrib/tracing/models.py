"""The position up to which events were exported, and the requests that started runs."""

from __future__ import annotations

from django.db import models


class Position(models.Model):
    """A single row. Events before this time were exported."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="tracing_position_is_one")]


class Origin(models.Model):
    """The span of the request that started a run, until the run's first span is exported."""

    run_id = models.UUIDField(primary_key=True)
    span_id = models.TextField()
