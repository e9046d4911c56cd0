"""What happened, and under which lease it may be written.

The tables here are written by the functions in `sql/` and by `append.py`, nobody else. Events, ledger entries and override records
are append-only: triggers refuse UPDATE, DELETE and TRUNCATE, and the runtime role has no right to them either.
"""

from __future__ import annotations

import pgtrigger
from django.db import models


def append_only() -> list[pgtrigger.Trigger]:
    """Triggers that refuse every change to what was once written. `Protect` knows nothing of TRUNCATE, so that has its own."""
    return [
        pgtrigger.Protect(name="append_only", operation=pgtrigger.Update | pgtrigger.Delete),
        pgtrigger.Trigger(
            name="no_truncate",
            level=pgtrigger.Statement,
            when=pgtrigger.Before,
            operation=pgtrigger.Truncate,
            func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;",
        ),
    ]


class Head(models.Model):
    """The one narrow row of a run that every step touches: fence, sequence, chain head, control flags, usage.

    It has no index but its key, so that its updates stay in the page.
    """

    run_id = models.UUIDField(primary_key=True)
    epoch = models.BigIntegerField(default=0)
    lease = models.UUIDField(null=True)
    seq = models.BigIntegerField(default=0)
    claimed_seq = models.BigIntegerField(default=0)
    deaths = models.SmallIntegerField(default=0)
    chain = models.BinaryField(max_length=32)
    is_pause_requested = models.BooleanField(default=False)
    is_cancel_requested = models.BooleanField(default=False)
    is_on_hold = models.BooleanField(default=False)
    steps = models.IntegerField(default=0)
    tokens_in = models.BigIntegerField(default=0)
    tokens_out = models.BigIntegerField(default=0)
    usd_micro = models.BigIntegerField(default=0)
    tool_calls = models.IntegerField(default=0)
    model_calls = models.IntegerField(default=0)


class Event(models.Model):
    """One line of a run's journal. `clear` and `sealed` are exact bytes; the other columns derive from them."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    epoch = models.BigIntegerField()
    at = models.DateTimeField()
    kind = models.TextField()
    slot = models.TextField(null=True)
    attempt = models.SmallIntegerField(default=0)
    fact = models.TextField(null=True)
    clear = models.BinaryField()
    sealed = models.BinaryField(null=True)
    prev_hash = models.BinaryField(max_length=32)
    hash = models.BinaryField(max_length=32)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "slot", "attempt", "fact"],
                condition=models.Q(slot__isnull=False),
                name="ledger_event_one_fact_per_slot",
            )
        ]
        triggers = append_only()


class LedgerEntry(models.Model):
    """One fact about one side effect. A call's story is its successive rows, never an updated one."""

    class Fact(models.TextChoices):
        PENDING = "pending"
        COMMITTED = "committed"
        FAILED = "failed"
        UNKNOWN = "unknown"
        RECONCILED = "reconciled"

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    seq = models.BigIntegerField(help_text="The journal event that this fact rode with.")
    slot = models.TextField()
    attempt = models.SmallIntegerField(default=0)
    fact = models.TextField(choices=Fact.choices)
    tool = models.TextField()
    replay_class = models.TextField()
    key = models.TextField(null=True)
    input_hash = models.TextField(null=True)
    external_id = models.TextField(null=True)
    digest = models.TextField(null=True)
    actor = models.TextField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["run_id", "seq"], name="ledger_entry_by_run"),
            models.Index(
                fields=["external_id"], condition=models.Q(external_id__isnull=False), name="ledger_entry_by_external_id"
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "slot", "attempt"],
                condition=models.Q(fact="pending"),
                name="ledger_entry_one_intent_per_attempt",
            )
        ]
        triggers = append_only()


class OverrideRecord(models.Model):
    """An act of a person that changed a run's course: who, as what, why, on what exact state, before and after."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    action = models.TextField()
    by = models.TextField()
    role = models.TextField()
    auth = models.TextField()
    address = models.TextField(blank=True)
    justification = models.TextField()
    seq = models.BigIntegerField(help_text="The journal's last event when the person acted.")
    chain = models.BinaryField(max_length=32)
    before = models.JSONField()
    after = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["run_id", "id"], name="ledger_override_by_run"),
            models.Index(fields=["-at"], name="ledger_override_by_time"),
        ]
        triggers = append_only()
