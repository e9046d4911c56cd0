"""Versions that are closed to new runs, ramps, and the starts that ramps assigned."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from ledger.models import append_only
from ledger.protected import protect


class VersionGate(models.Model):
    """A version's switch for new runs. A version without a row accepts new runs."""

    id = models.BigAutoField(primary_key=True)
    agent = models.TextField()
    version = models.TextField()
    is_closed = models.BooleanField()
    set_by = models.TextField()
    set_at = models.DateTimeField()
    why = models.TextField()

    class Meta:
        db_table = "runs_versiongate"
        constraints = [models.UniqueConstraint(fields=["agent", "version"], name="runs_versiongate_once")]

    def __str__(self) -> str:
        return self.graph_id

    @property
    def graph_id(self) -> str:
        return f"{self.agent}@{self.version}"


class Ramp(models.Model):
    """A gradual move of an agent's starts from one version to another, by share and by tags.

    An agent has at most one ramp at a time."""

    class State(models.TextChoices):
        ON = "on"
        HALTED = "halted"
        ROLLED_BACK = "rolled_back"
        DONE = "done"

    id = models.BigAutoField(primary_key=True)
    agent = models.TextField()
    from_version = models.TextField()
    to_version = models.TextField()
    share = models.IntegerField(help_text="Number of starts out of 10,000 that go to the newer version.")
    tags = models.JSONField(default=list, help_text="Tags whose starts go to the newer version too.")
    bounds = models.JSONField(help_text="Percentages of failed, rejected and stopped runs above which it halts.")
    least = models.IntegerField(help_text="Number of runs started on the newer version before the bounds apply.")
    state = models.TextField(choices=State.choices, default=State.ON)
    revision = models.IntegerField(default=1, help_text="Increases with each change.")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    counted_after = models.BigIntegerField(default=0, help_text="Only starts after this one count for the bounds.")
    counted_from = models.DateTimeField(
        null=True, help_text="Earlier starts count if their runs began after this time."
    )
    halted_at = models.DateTimeField(null=True)
    halted_by = models.JSONField(null=True, help_text="The figures that halted the ramp.")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_ramp"
        constraints = [
            models.UniqueConstraint(
                fields=["agent"], condition=Q(ended_at__isnull=True), name="runs_ramp_one_of_agent"
            ),
            models.CheckConstraint(condition=Q(share__gte=0, share__lte=10_000), name="runs_ramp_share"),
            models.CheckConstraint(condition=~Q(from_version=models.F("to_version")), name="runs_ramp_goes_somewhere"),
            models.CheckConstraint(
                condition=Q(state__in=["on", "halted"], ended_at__isnull=True)
                | Q(state__in=["rolled_back", "done"], ended_at__isnull=False),
                name="runs_ramp_ends_once",
            ),
        ]
        indexes = [models.Index(fields=["agent", "-id"], name="runs_ramp_of_agent")]

    def __str__(self) -> str:
        return f"{self.agent} {self.from_version} → {self.to_version}"

    @property
    def is_on(self) -> bool:
        return self.state == Ramp.State.ON

    @property
    def from_graph(self) -> str:
        return f"{self.agent}@{self.from_version}"

    @property
    def to_graph(self) -> str:
        return f"{self.agent}@{self.to_version}"


class RampStart(models.Model):
    """A start that a ramp assigned. The run's journal has the same assignment."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField(unique=True)
    ramp = models.ForeignKey(Ramp, on_delete=models.PROTECT, related_name="starts", db_index=False)
    is_new = models.BooleanField(help_text="Whether it was assigned the newer version.")
    why = models.TextField()
    place = models.IntegerField(help_text="Place of the start's key among 10,000.")
    at = models.DateTimeField()

    class Meta:
        db_table = "runs_rampstart"
        indexes = [models.Index(fields=["ramp", "is_new", "id"], name="runs_rampstart_of_ramp")]
        triggers = append_only()


# Changes to these rows outside the application are detected: see ledger/protected.py.
VERSION_GATE = protect(VersionGate, "version", named_by="version")


def gate_proofs(condition: str = "true") -> str:
    """Return SQL for one list of the proofs of all gates that match the condition.

    In the condition, `t` is the table of gates. The list includes gates that were deleted outside the application."""
    return f"""(SELECT coalesce(jsonb_agg(p.proof -> 0), '[]')::text FROM (
        SELECT {VERSION_GATE.proof_sql("t")} AS proof FROM runs_versiongate t WHERE {condition}
        UNION ALL {VERSION_GATE.gone_sql()}) p)"""
