"""Rows of version gates, ramps and cached reads."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from ledger.chain import microseconds
from ledger.models import append_only


class VersionGate(models.Model):
    """A version's switch for new starts. Without a row it takes them."""

    id = models.BigAutoField(primary_key=True)
    agent = models.TextField()
    version = models.TextField()
    is_closed = models.BooleanField()
    set_by = models.TextField()
    set_at = models.DateTimeField()
    why = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "version"], name="runs_versiongate_once")]

    def __str__(self) -> str:
        return self.graph_id

    @property
    def graph_id(self) -> str:
        return f"{self.agent}@{self.version}"


class Ramp(models.Model):
    """A move of an agent's starts from one version to another: by share and by tags. One at a time per agent."""

    class State(models.TextChoices):
        ON = "on"
        HALTED = "halted"
        ROLLED_BACK = "rolled_back"
        DONE = "done"

    id = models.BigAutoField(primary_key=True)
    agent = models.TextField()
    from_version = models.TextField()
    to_version = models.TextField()
    share = models.IntegerField(help_text="How many of 10,000 starts go to the newer version.")
    tags = models.JSONField(default=list, help_text="Starts with one of these go there, whatever the share.")
    bounds = models.JSONField(help_text="Above which per cent of its runs it halts: failed, rejected, stopped.")
    least = models.IntegerField(help_text="Not before so many runs were begun on the newer version.")
    state = models.TextField(choices=State.choices, default=State.ON)
    revision = models.IntegerField(default=1, help_text="Goes up with each change.")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    counted_after = models.BigIntegerField(default=0, help_text="Only starts after this one count towards the bounds.")
    counted_from = models.DateTimeField(null=True, help_text="And those before it that were begun after this time.")
    halted_at = models.DateTimeField(null=True)
    halted_by = models.JSONField(null=True, help_text="The figures that halted it.")
    ended_at = models.DateTimeField(null=True)

    class Meta:
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
    """A start that a ramp assigned, as in the run's journal."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField(unique=True)
    ramp = models.ForeignKey(Ramp, on_delete=models.PROTECT, related_name="starts", db_index=False)
    is_new = models.BooleanField(help_text="It was given the newer version.")
    why = models.TextField()
    place = models.IntegerField(help_text="Where its key stands among 10,000.")
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["ramp", "is_new", "id"], name="runs_rampstart_of_ramp")]
        triggers = append_only()


class CachedRead(models.Model):
    """A cached answer. `code` covers the row, so that it can't be forged."""

    key = models.BinaryField(primary_key=True, max_length=32, help_text="A keyed digest of tool, arguments and scope.")
    tool = models.TextField()
    run_id = models.UUIDField(help_text="The run whose call made it, so that it can be forgotten with that run.")
    slot = models.TextField()
    at = models.DateTimeField(help_text="When that call began.")
    expires_at = models.DateTimeField()
    size = models.IntegerField()
    sealed = models.BinaryField()
    code = models.BinaryField()

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="runs_cachedread_by_end"),
            models.Index(fields=["run_id"], name="runs_cachedread_by_run"),
        ]

    def coded(self) -> dict[str, Any]:
        """Return all values that are relied on."""
        return coded(
            self.key,
            self.tool,
            str(self.run_id),
            self.slot,
            microseconds(self.at),
            microseconds(self.expires_at),
            self.sealed,
        )


def coded(
    key: bytes | memoryview, tool: str, run_id: str, slot: str, at: int, expires_at: int, sealed: bytes | memoryview
) -> dict[str, Any]:
    """Return the same from single values."""
    return {
        "key": bytes(key).hex(),
        "tool": tool,
        "run": run_id,
        "slot": slot,
        "at": at,
        "expires_at": expires_at,
        "sealed": bytes(sealed).hex(),
    }
