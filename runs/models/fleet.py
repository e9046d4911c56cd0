"""Models of the processes that drive runs, their agent versions, and incidents of lost processes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import models

from ledger.contents import ContentText
from ledger.models import append_only
from ledger.protocol import PROTOCOL


class AgentVersion(models.Model):
    """The fingerprint of an agent version at its first use. A version's code never changes in place."""

    graph_id = models.TextField(primary_key=True)
    fingerprint = models.TextField()
    parts = models.JSONField()
    first_used_at = models.DateTimeField()


class AgentCode(models.Model):
    """The parts of an agent version's code that a worker loaded, by fingerprint, for comparison with old
    checkpoints."""

    id = models.BigAutoField(primary_key=True)
    graph_id = models.TextField()
    fingerprint = models.TextField()
    parts = models.JSONField()
    first_seen_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["graph_id", "fingerprint"], name="runs_agentcode_once")]


class Served(models.Model):
    """An agent version that a worker has loaded.
    It is quarantined if the worker's code differs from the version's."""

    worker = models.UUIDField()
    graph_id = models.TextField()
    is_quarantined = models.BooleanField(default=False)
    is_draining = models.BooleanField(
        default=False, db_default=False, help_text="Continues existing runs of this version, but starts none."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["worker", "graph_id"], name="runs_served_once")]


@dataclass(frozen=True, slots=True)
class BusyTool:
    """A blocking tool whose threads in a worker are all busy: their number, and since when."""

    tool: str
    busy: int
    threads: int
    since: datetime


def own_protocol() -> int:
    return PROTOCOL


class Process(models.Model):
    """One incarnation of a process.
    Pids are reused, but a pid with its start time, boot and host is unique."""

    id = models.UUIDField(primary_key=True)
    kind = models.TextField()
    host = models.TextField()
    boot = models.TextField(help_text="Boot id and pid namespace, within which a pid is unique.")
    pid = models.IntegerField()
    born_ticks = models.BigIntegerField(help_text="The kernel's start time of the process, in clock ticks since boot.")
    started_at = models.DateTimeField()
    last_heartbeat_at = models.DateTimeField()
    slots_used = models.IntegerField(default=0)
    slots_total = models.IntegerField(default=0)
    tools_busy = models.JSONField(
        default=list,
        db_default=[],
        help_text="The tools whose threads were all busy at the last heartbeat, and for how long: workers only.",
    )
    anchored_at = models.DateTimeField(
        null=True, help_text="Time of its last heartbeat while it held its session lock: workers only."
    )
    protocol = models.SmallIntegerField(
        default=own_protocol, db_default=1, help_text="Protocol of its code: ledger/protocol.py."
    )
    drain_asked_at = models.DateTimeField(null=True, help_text="Time when an operator asked it to drain: workers only.")
    ended_at = models.DateTimeField(null=True)
    end_cause = models.TextField(
        blank=True, default="", help_text="Why it is recorded as ended: see Incident.Cause; empty if it ended normally."
    )
    end_proof = models.TextField(blank=True, default="", help_text="The same as text.")

    class Meta:
        indexes = [models.Index(fields=["kind"], condition=models.Q(ended_at__isnull=True), name="runs_process_alive")]

    @property
    def busy_tools(self) -> list[BusyTool]:
        """Return the tools whose threads were all busy at the last heartbeat."""
        at = self.last_heartbeat_at
        return [
            BusyTool(each["tool"], each["busy"], each["threads"], at - timedelta(seconds=each["seconds"]))
            for each in self.tools_busy
        ]


class Incident(models.Model):
    """An incident in which a run was taken from its worker: cause, worker and state.
    The row is written once, together with the event. The consequences (next claim, next step, repeated calls) are in
    the journal after `seq`."""

    class Cause(models.TextChoices):
        PROOF = "proof"
        SUSPICION = "suspicion"
        HOST_GONE = "host_gone"
        OPERATOR = "operator"
        DRAIN_CUT = "drain_cut"
        REQUEUED = "requeued"

    class Reached(models.TextChoices):
        CLAIMED = "claimed"
        INTENT = "intent_durable"
        RESULT = "result_durable"
        VISIT = "visit_entered"
        WAIT = "wait_opened"

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    seq = models.BigIntegerField(help_text="Its journal event.")
    at = models.DateTimeField()
    cause = models.TextField(choices=Cause.choices)
    proof = models.TextField()
    worker = models.UUIDField()
    host = models.TextField()
    pid = models.IntegerField()
    epoch = models.BigIntegerField(help_text="Epoch of the lost worker; that of the next claim is in the journal.")
    reached = models.TextField(choices=Reached.choices)
    in_doubt = models.JSONField(help_text="Calls with a recorded intent but no recorded outcome.")
    replayed = models.IntegerField(help_text="Recorded outcomes of this visit, which the next worker replays.")
    is_counted = models.BooleanField()
    deaths = models.SmallIntegerField()
    is_stopped = models.BooleanField(
        help_text="Whether the run exceeded the limit of workers' deaths, so that an operator was asked."
    )
    last_sign_at = models.DateTimeField(null=True)
    detected_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run_id", "seq"], name="runs_incident_once")]
        indexes = [
            models.Index(fields=["-at", "-id"], name="runs_incident_by_time"),
            models.Index(fields=["host", "-id"], name="runs_incident_by_host"),
            models.Index(fields=["cause", "-id"], name="runs_incident_by_cause"),
        ]
        triggers = append_only()


class Sweep(models.Model):
    """The time of the last sweep, in a single row. /readyz reads it."""

    id = models.SmallIntegerField(primary_key=True)
    at = models.DateTimeField()


# Causes that don't prove the worker dead. The worker's row is kept, since it may still be sending.
WITHOUT_PROOF = (Incident.Cause.SUSPICION, Incident.Cause.HOST_GONE)
# Other rows are deleted after this time.
KEPT = timedelta(days=7)


class Listener(models.Model):
    """A record that somebody is watching the run live, until a given time."""

    run_id = models.UUIDField(primary_key=True)
    until = models.DateTimeField(db_index=True)


class Overheard(models.Model):
    """The latest part of the answer that a model is sending to the request at a slot."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    slot = models.TextField()
    attempt = models.IntegerField()
    epoch = models.BigIntegerField(help_text="Epoch of the worker that receives it.")
    text = ContentText()
    characters = models.IntegerField(help_text="Length of the whole text so far, of which only the end is stored.")
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run_id", "slot"], name="runs_overheard_once"),)
