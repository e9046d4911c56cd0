"""Seals, the heads that they cover, their keys, and the log of deliveries.

All tables except `Witness` are append-only.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from durableagents.contrib.seals.records import Leaf, SealRecord
from ledger.models import append_only


class SealKey(models.Model):
    """A public key. Each key is signed with the key before it; the first key is signed with itself."""

    number = models.BigIntegerField(primary_key=True)
    public_key = models.BinaryField(max_length=32)
    made_at = models.DateTimeField()
    reason = models.TextField(blank=True)
    by = models.TextField()
    signature = models.BinaryField(max_length=64)

    class Meta:
        triggers = append_only()


class Seal(models.Model):
    """A signature over all heads that moved since the previous seal. See records.py for the signed bytes."""

    number = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    key = models.BigIntegerField(help_text="The number of the key that signed it.")
    previous = models.BinaryField(max_length=32)
    root = models.BinaryField(max_length=32)
    count = models.BigIntegerField()
    signature = models.BinaryField(max_length=64)
    # Where the next search for moved heads begins (sealing.py). This value is not signed: with a wrong one, a head is
    # only found later, by the walk over all heads.
    oldest_open_xid = models.BigIntegerField(help_text="No older transaction was in progress when heads were read.")
    next_xid = models.BigIntegerField(help_text="Transactions with this id or a higher one began later.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["previous"], name="seals_seal_one_successor")]
        triggers = append_only()

    @property
    def record(self) -> SealRecord:
        return SealRecord(
            self.number,
            self.at,
            self.key,
            bytes(self.previous),
            bytes(self.root),
            self.count,
            bytes(self.signature),
        )


class SealedHead(models.Model):
    """A leaf of a seal: the last event of a run at that time. A run's last sealed event is found by the primary key."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)
    # No foreign key, so that verification can report a leaf whose seal was deleted.
    seal = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["seal", "run_id"], name="seals_head_by_seal")]
        triggers = append_only()

    @property
    def leaf(self) -> Leaf:
        return Leaf(self.run_id, self.seq, bytes(self.hash))


class Witness(models.Model):
    """Time of the next attempt for a witness. These are the only rows of this app that change."""

    name = models.TextField(primary_key=True)
    since = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField()
    failures = models.IntegerField(default=0)


class Delivery(models.Model):
    """One attempt to deliver seals to a witness."""

    class Outcome(models.TextChoices):
        TAKEN = "taken"
        FAILED = "failed"

    id = models.BigAutoField(primary_key=True)
    witness = models.TextField()
    first = models.BigIntegerField(help_text="The first seal of the batch.")
    last = models.BigIntegerField(
        help_text="The last seal of the batch that the witness accepted, or the one that failed."
    )
    at = models.DateTimeField()
    outcome = models.TextField(choices=Outcome.choices)
    error = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["witness", "last"], condition=models.Q(outcome="taken"), name="seals_delivery_taken"),
            models.Index(fields=["witness", "-id"], name="seals_delivery_by_witness"),
        ]
        triggers = append_only()
