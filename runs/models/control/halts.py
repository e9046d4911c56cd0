"""Halts: nothing begins in their scope. The record of them, what holds now, which workers have heard, and whose runs
are put aside meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models

from ledger.chain import microseconds
from ledger.models import Coded, append_only

PLACES = 10_000
# Since when a run that is put aside wants driving: in a time that never comes, out of every claim's sight.
NEVER = datetime(9000, 1, 1, tzinfo=UTC)


class Halt(Coded):
    """One row of the record: a halt as it was set (number 0), then each time something else was said of it. `opens`
    proves that it may follow on the row before; `lock` is what its own successor has to open."""

    TABLE = "halt"

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

    def coded(self) -> dict[str, Any]:
        """What the code covers: everything that the row says."""
        return {
            "halt": str(self.halt),
            "n": self.n,
            "kind": str(self.kind),
            "scope": str(self.scope),
            "key": self.key,
            "refuses": self.refuses,
            "stage": str(self.stage),
            "share": self.share,
            "agents": list(self.agents),
            "tags": list(self.tags),
            "by": self.by,
            "why": self.why,
            "at": microseconds(self.at),
            "opens": bytes(self.opens or b"").hex(),
            "lock": bytes(self.lock or b"").hex(),
        }


class HaltNow(models.Model):
    """A halt that holds, as the last row of its record says. The record's trigger keeps it; nobody else may."""

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
    """What a worker says of a row of the record: it begins nothing in its scope any more, and this is what it still has
    under way there."""

    pk = models.CompositePrimaryKey("line", "worker")
    line = models.BigIntegerField(help_text="The row of the record.")
    worker = models.UUIDField()
    seen_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, help_text="Its runs stand still but for calls in flight.")
    running = models.IntegerField(help_text="Runs in its scope that have not come to their next step.")
    calls = models.JSONField(help_text="Calls in flight: run, slot, what, since, timeout.")
    told_at = models.DateTimeField()


class Held(models.Model):
    """A run that is put aside: it wants driving, and a halt keeps it from that. `seen` is the row of the record that it
    was last held against; `keys` what it was about to call, where the halt isn't of all of it."""

    run_id = models.UUIDField(primary_key=True)
    halt = models.UUIDField()
    seen = models.BigIntegerField()
    keys = ArrayField(models.TextField(), null=True)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["seen"], name="runs_held_seen")]


class Stood(models.Model):
    """Up to when the time in which a run stood still is in a deadline of its: of a wait, or of the run itself."""

    id = models.UUIDField(primary_key=True, help_text="The wait's, or the run's.")
    run_id = models.UUIDField()
    at = models.DateTimeField(help_text="When it was counted: what comes after was put off by way of precaution.")
    until = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["until"], name="runs_stood_until")]
