"""Rows of bulk acts, halts and policy revisions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models

from ledger.models import Coded, Json, append_only
from runs.engine.canonical import as_hashed


class Given(Json):
    """JSON as sent: jsonb returns 1e22 as an integer, but no integer that large can be sent, so it was a float."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return as_hashed(super().from_db_value(value, expression, connection))


class Batch(Coded):
    """A requested act on many runs. The selection is frozen at creation. The code covers all that a worker uses, so
    that a forged row moves no run."""

    FREE = frozenset({"forecast", "receipt"})  # nothing relies on the forecast; the receipt's digest is in `said`

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
            # An ended act stays ended, so that its old row can't be replayed.
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
    """One run of a batch, and its outcome: none yet, done, refused (and why), or failed."""

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
            # An outcome is final, so that nothing is done to a run twice.
            pgtrigger.Protect(name="comes_once", operation=pgtrigger.Update, condition=~pgtrigger.Q(old__outcome=""))
        ]

    def __str__(self) -> str:
        return f"{self.batch_id} {self.n}"


PLACES = 10_000
# `ready_at` of held runs: a time that never comes, beyond every claim.
NEVER = datetime(9000, 1, 1, tzinfo=UTC)


class Halt(Coded):
    """One row of a halt's record: the halt as set (number 0), then each change. `opens` proves that it may follow the
    previous row; `lock` is what its successor has to open."""

    class Kind(models.TextChoices):
        HALT = "halt"
        QUARANTINE = "quarantine"
        STARTS = "starts"

    class Scope(models.TextChoices):
        ALL = "all"
        TAG = "tag"
        AGENT = "agent"
        VERSION = "version"
        TOOL = "tool"
        PROVIDER = "provider"

    class Stage(models.TextChoices):
        WHOLE = "whole"
        STAGED = "staged"
        LIFTED = "lifted"

    id = models.BigAutoField(primary_key=True)
    halt = models.UUIDField()
    n = models.IntegerField()
    kind = models.TextField(choices=Kind.choices)
    scope = models.TextField(choices=Scope.choices)
    key = models.TextField(blank=True)
    refuses = models.BooleanField(help_text="New starts are refused, and not only kept waiting.")
    stage = models.TextField(choices=Stage.choices)
    share = models.IntegerField(help_text="How many of 10,000 runs it lets through.")
    agents = ArrayField(models.TextField(), help_text="Whose runs it lets through.")
    tags = ArrayField(models.TextField(), help_text="Runs with one of these it lets through.")
    by = models.TextField()
    why = models.TextField()
    at = models.DateTimeField()
    opens = models.BinaryField(max_length=32, null=True)
    lock = models.BinaryField(max_length=32, null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["halt", "n"], name="runs_halt_row_once"),
            models.CheckConstraint(condition=models.Q(share__gte=0, share__lt=PLACES), name="runs_halt_share"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.scope} {self.key}".strip()


class HaltNow(models.Model):
    """A halt in force, by the last row of its record. Only the record's trigger writes it."""

    halt = models.UUIDField(primary_key=True)
    id = models.BigIntegerField(help_text="The row of the record.")
    n = models.IntegerField()
    kind = models.TextField()
    scope = models.TextField()
    key = models.TextField()
    refuses = models.BooleanField()
    is_staged = models.BooleanField()
    share = models.IntegerField()
    agents = ArrayField(models.TextField())
    tags = ArrayField(models.TextField())
    by = models.TextField(help_text="Who set it.")
    why = models.TextField()
    since = models.DateTimeField()


class HaltSeen(models.Model):
    """A worker's acknowledgement of a record's row: it begins nothing in the scope, and lists what is in progress."""

    pk = models.CompositePrimaryKey("line", "worker")
    line = models.BigIntegerField(help_text="The row of the record.")
    worker = models.UUIDField()
    seen_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, help_text="Its runs stand still but for calls in flight.")
    running = models.IntegerField(help_text="Runs in its scope that have not come to their next step.")
    calls = models.JSONField(help_text="Calls in flight: run, slot, what, since, timeout.")
    told_at = models.DateTimeField()


class Held(models.Model):
    """A run that is ready but halted. `seen` is the row of the record last compared; `keys` its next calls, if the halt
    covers only those."""

    run_id = models.UUIDField(primary_key=True)
    halt = models.UUIDField()
    seen = models.BigIntegerField()
    keys = ArrayField(models.TextField(), null=True)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["seen"], name="runs_held_seen")]


class Stood(models.Model):
    """The moment up to which halted time is already included in a deadline of a wait or of the run."""

    id = models.UUIDField(primary_key=True, help_text="The wait's, or the run's.")
    run_id = models.UUIDField()
    at = models.DateTimeField(help_text="When it was counted: what comes after was put off by way of precaution.")
    until = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["until"], name="runs_stood_until")]


class PolicyRevision(Coded):
    """The policies in force from here on. The newest counts: intents judged by another one are refused
    (runs/sql/policies.sql). `live` is their number, `policies` their digest. Append-only."""

    revision = models.BigIntegerField(primary_key=True)
    live = models.IntegerField()
    policies = models.TextField()
    set_by = models.TextField()
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()

    def __str__(self) -> str:
        return f"policies {self.revision}"
