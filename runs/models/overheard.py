"""What models are saying right now (runs/overheard): two tables without a log, empty after a crash of the server."""

from __future__ import annotations

from django.db import models


class Listener(models.Model):
    """That somebody looks at a run, until when."""

    run_id = models.UUIDField(primary_key=True)
    until = models.DateTimeField(db_index=True)


class Overheard(models.Model):
    """The end of what the request at a slot has been answered so far."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    slot = models.TextField()
    attempt = models.IntegerField()
    epoch = models.BigIntegerField(help_text="The claim whose worker hears it.")
    text = models.TextField()
    characters = models.IntegerField(help_text="Of the whole so far; the text is its end.")
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run_id", "slot"], name="runs_overheard_once"),)
