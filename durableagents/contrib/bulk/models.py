"""Models of operations on many runs: batches and their items."""

from __future__ import annotations

from typing import Any

import pgtrigger
from django.db import models

from ledger.models import Coded, Json
from ledger.protected import protect
from runs.engine.canonical import as_hashed


class ReceiptField(Json):
    """JSON exactly as it was sent.

    jsonb returns 1e22 as an integer. No integer of that size can be sent, so such a value was sent as a float.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return as_hashed(super().from_db_value(value, expression, connection))


class Batch(Coded):
    """A requested operation on many runs, with a selection that is fixed at creation.

    The row's code covers all fields that a worker uses, so a forged row changes no run.
    """

    # excluded from the code: nothing relies on the forecast, and `said` contains the receipt's digest
    FREE = frozenset({"forecast", "receipt"})

    id = models.UUIDField(primary_key=True)
    action = models.TextField()
    said = Json(default=dict, help_text="Parameters of the operation; the digest of a receipt.")
    receipt = ReceiptField(null=True, help_text="Result of the calls that happened; kept until the batch has ended.")
    justification = models.TextField()
    chosen = Json(help_text="The filter that selected the runs, or a note that they were named.")
    total = models.IntegerField()
    digest = models.TextField(help_text="SHA-256 of the ids of its runs, in batch order.")
    forecast = Json(default=dict, help_text="Forecast at creation.")
    by = models.TextField()
    person = models.BigIntegerField(null=True)
    auth = models.TextField(blank=True)
    address = models.TextField(blank=True)
    made_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)
    stopped_by = models.TextField(blank=True, default="")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_batch"
        indexes = [
            models.Index(fields=["-made_at", "-id"], name="runs_batch_newest"),
            models.Index(fields=["person", "-made_at", "-id"], name="runs_batch_of_person"),
            models.Index(
                fields=["started_at"],
                condition=models.Q(started_at__isnull=False, ended_at__isnull=True),
                name="runs_batch_under_way",
            ),
        ]
        triggers = [
            # An ended batch can't be reopened, so its old row can't be replayed.
            pgtrigger.Protect(
                name="is_over_once", operation=pgtrigger.Update, condition=pgtrigger.Q(old__ended_at__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.id}"

    @property
    def state(self) -> str:
        """Return draft, running, stopped or done."""
        if self.ended_at is not None:
            return "stopped" if self.stopped_at is not None else "done"
        return "draft" if self.started_at is None else "running"


class BatchItem(models.Model):
    """One run of a batch, and its outcome: none yet, done, refused or failed."""

    class Outcome(models.TextChoices):
        DONE = "done"
        REFUSED = "refused"
        FAILED = "failed"

    id = models.BigAutoField(primary_key=True)
    batch = models.ForeignKey(Batch, on_delete=models.PROTECT, related_name="items", db_index=False)
    n = models.IntegerField()
    run_id = models.UUIDField(help_text="Set even if the run does not exist or the requester may not see it.")
    wait_id = models.UUIDField(
        null=True, help_text="For reconcile: the run's only unknown outcome when the batch was created."
    )
    outcome = models.TextField(choices=Outcome.choices, blank=True, default="", db_default="")
    code = models.TextField(blank=True, default="", db_default="")
    why = models.TextField(blank=True, default="", db_default="")
    tries = models.SmallIntegerField(
        default=0, db_default=0, help_text="Number of failures caused by the database or this application."
    )
    at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_batchitem"
        constraints = [
            models.UniqueConstraint(fields=["batch", "run_id"], name="runs_batchitem_once"),
            models.UniqueConstraint(fields=["batch", "n"], name="runs_batchitem_place"),
        ]
        indexes = [
            models.Index(fields=["batch", "n"], condition=models.Q(outcome=""), name="runs_batchitem_left"),
            models.Index(fields=["batch", "outcome", "n"], name="runs_batchitem_by_outcome"),
            models.Index(fields=["run_id"], name="runs_batchitem_of_run"),
        ]
        triggers = [
            # An outcome is final, so that no action is applied to a run twice.
            pgtrigger.Protect(name="comes_once", operation=pgtrigger.Update, condition=~pgtrigger.Q(old__outcome=""))
        ]

    def __str__(self) -> str:
        return f"{self.batch_id} {self.n}"


protect(Batch, "batch of runs", named_by="id")
