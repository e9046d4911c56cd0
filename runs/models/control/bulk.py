"""One act on many runs: who wants it, on which runs exactly, and what became of each."""

from __future__ import annotations

from typing import Any

import pgtrigger
from django.db import models

from ledger.chain import microseconds
from ledger.models import Coded, Json
from runs.engine.canonical import as_hashed


class Given(Json):
    """What somebody sent, number for number. jsonb writes 1e22 out as an integer; nobody could have sent one so large,
    so what comes back as one was a float."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return as_hashed(super().from_db_value(value, expression, connection))


class Batch(Coded):
    """An act on many runs, as somebody asked for it. The selection is frozen when it is made. Its code covers all that
    a worker goes by, so that a row which nobody with the installation's key wrote moves no run."""

    TABLE = "batch"

    id = models.UUIDField(primary_key=True)
    action = models.TextField()
    said = Json(default=dict, help_text="What the act says besides its reason; of a receipt its digest.")
    receipt = Given(null=True, help_text="What happened, of a reconcile: until it is over.")
    justification = models.TextField()
    chosen = Json(help_text="How the runs were chosen: the filter, or that they were named.")
    total = models.IntegerField()
    digest = models.TextField(help_text="SHA-256 of the ids of its runs, in their order.")
    forecast = Json(default=dict, help_text="What would become of them, as of when it was made.")
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
            # What is over is over, whoever has which rights: nobody lets it go on by what its row once said.
            pgtrigger.Protect(
                name="is_over_once", operation=pgtrigger.Update, condition=pgtrigger.Q(old__ended_at__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.id}"

    @property
    def state(self) -> str:
        """draft, running, stopped or done."""
        if self.ended_at is not None:
            return "stopped" if self.stopped_at is not None else "done"
        return "draft" if self.started_at is None else "running"

    def coded(self) -> dict[str, Any]:
        """What the code covers: everything but the forecast, by which nothing goes."""
        moments = ("made_at", "started_at", "stopped_at", "ended_at")
        names = ("action", "said", "justification", "chosen", "total", "digest", "by", "person", "auth", "address")
        return {
            "id": str(self.pk),
            **{name: getattr(self, name) for name in (*names, "stopped_by")},
            **{name: None if (at := getattr(self, name)) is None else microseconds(at) for name in moments},
        }


class BatchItem(models.Model):
    """One run of it, and what became of that: nothing yet, done, refused (and why), or failed."""

    class Outcome(models.TextChoices):
        DONE = "done"
        REFUSED = "refused"
        FAILED = "failed"

    id = models.BigAutoField(primary_key=True)
    batch = models.ForeignKey(Batch, on_delete=models.PROTECT, related_name="items", db_index=False)
    n = models.IntegerField()
    run_id = models.UUIDField(help_text="Of one that there isn't, or that nobody may see, it says so.")
    wait_id = models.UUIDField(null=True, help_text="Of a reconcile: the one unknown outcome that it had then.")
    outcome = models.TextField(choices=Outcome.choices, blank=True, default="", db_default="")
    code = models.TextField(blank=True, default="", db_default="")
    why = models.TextField(blank=True, default="", db_default="")
    tries = models.SmallIntegerField(default=0, db_default=0, help_text="How often the database didn't let it be done.")
    at = models.DateTimeField(null=True)

    class Meta:
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
            # What has become of a run stands, whoever has which rights: nothing is done to it a second time.
            pgtrigger.Protect(name="comes_once", operation=pgtrigger.Update, condition=~pgtrigger.Q(old__outcome=""))
        ]

    def __str__(self) -> str:
        return f"{self.batch_id} {self.n}"
