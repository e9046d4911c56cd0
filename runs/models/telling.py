"""What nodes say for people (runs/engine/steps/telling.py): beside the journal, outside its chain, and bounded."""

from __future__ import annotations

from django.db import models


class Telling(models.Model):
    """How far a run has come, and what became of its lines. `seen` is how many each branch of the visit has said."""

    run_id = models.UUIDField(primary_key=True)
    lines = models.IntegerField(help_text="Lines that are kept.")
    lost = models.BigIntegerField(help_text="Lines that were said and aren't.")
    seen = models.JSONField()
    done = models.FloatField(null=True)
    total = models.FloatField(null=True)
    note = models.TextField()
    at = models.DateTimeField(null=True)
    since_epoch = models.BigIntegerField(null=True, help_text="The claim since which progress is counted.")
    since_at = models.DateTimeField(null=True)
    since_done = models.FloatField(null=True)


class LogLine(models.Model):
    """One line."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    at = models.DateTimeField()
    level = models.TextField()
    text = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["run_id", "id"], name="runs_logline_by_run")]
