"""Models of halts, their confirmation by workers, and the runs they hold.

The tables keep the names that they had before this became a separate app.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from ledger.models import Coded, append_only

PLACES = 10_000


class Halt(Coded):
    """One row of a halt's record. Row 0 is the halt as it was set; each later row is a change.

    `opens` proves that the row's writer was allowed to change the halt. `lock` is the digest that the next row's
    `opens` must match.
    """

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
    refuses = models.BooleanField(help_text="New starts are refused instead of kept waiting.")
    stage = models.TextField(choices=Stage.choices)
    share = models.IntegerField(help_text="Number of runs out of 10,000 that the halt lets through.")
    agents = ArrayField(models.TextField(), help_text="Agents whose runs the halt lets through.")
    tags = ArrayField(models.TextField(), help_text="Tags whose runs the halt lets through.")
    by = models.TextField()
    why = models.TextField()
    at = models.DateTimeField()
    opens = models.BinaryField(max_length=32, null=True)
    lock = models.BinaryField(max_length=32, null=True)

    class Meta:
        db_table = "runs_halt"
        constraints = [
            models.UniqueConstraint(fields=["halt", "n"], name="runs_halt_row_once"),
            models.CheckConstraint(condition=models.Q(share__gte=0, share__lt=PLACES), name="runs_halt_share"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.scope} {self.key}".strip()


class HaltNow(models.Model):
    """A halt in force, from the last row of its record. Only the trigger on the record writes it."""

    halt = models.UUIDField(primary_key=True)
    id = models.BigIntegerField(help_text="The row of the halt's record.")
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

    class Meta:
        db_table = "runs_haltnow"


class HaltSeen(models.Model):
    """A worker's report on a row of the record; confirmed once it starts nothing more in the scope.

    The report counts the runs and lists the calls that are still in progress.
    """

    pk = models.CompositePrimaryKey("line", "worker")
    line = models.BigIntegerField(help_text="The row of the halt's record.")
    worker = models.UUIDField()
    seen_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, help_text="Its runs have stopped, except for calls in flight.")
    running = models.IntegerField(help_text="Runs in its scope that have not reached their next step.")
    calls = models.JSONField(help_text="Calls in flight: run, slot, what, since, timeout.")
    told_at = models.DateTimeField()

    class Meta:
        db_table = "runs_haltseen"


class Held(models.Model):
    """A run that is ready but halted.

    `seen` is the row of the record with which the run was last compared. `keys` are its next calls, if the halt covers
    only those.
    """

    run_id = models.UUIDField(primary_key=True)
    halt = models.UUIDField()
    seen = models.BigIntegerField()
    keys = ArrayField(models.TextField(), null=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "runs_held"
        indexes = [models.Index(fields=["seen"], name="runs_held_seen")]


class Stood(models.Model):
    """The time up to which halted time is already included in a deadline (of a wait or a run)."""

    id = models.UUIDField(primary_key=True, help_text="Id of the wait or of the run.")
    run_id = models.UUIDField()
    at = models.DateTimeField(
        help_text="Time up to which it is counted; if in the future, the deadline was extended as a precaution."
    )
    until = models.DateTimeField()

    class Meta:
        db_table = "runs_stood"
        indexes = [models.Index(fields=["until"], name="runs_stood_until")]
