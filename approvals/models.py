"""Gates as people see them: what is asked, what the decision binds, and who decided."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django_fsm import FSMField, transition

from ledger.models import append_only
from runs.models import Run, Wait


class ApprovalState(models.TextChoices):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


A = ApprovalState
# What a decision is made on: written when the question is put, never after.
FROZEN = [
    "run", "wait", "queue", "revision", "previous", "tool", "title", "effect", "rule", "plan", "plan_hash", "evidence", "why", "requested_by",
    "opened_at",
]  # fmt: skip


class Approval(models.Model):
    """One revision of one question to one queue. `plan` is the exact text that `plan_hash` covers and the page shows."""

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="approvals")
    wait = models.OneToOneField(Wait, on_delete=models.PROTECT, related_name="approval")
    queue = models.TextField()
    state = FSMField(default=A.OPEN, choices=A.choices, protected=True)
    revision = models.SmallIntegerField(default=1)
    previous = models.OneToOneField("self", null=True, on_delete=models.PROTECT, related_name="next")
    tool = models.TextField()
    title = models.TextField()
    effect = models.TextField(blank=True)
    rule = models.TextField()
    plan = models.BinaryField(
        help_text="Canonical JSON (RFC 8785): agent, version, run, slot, tool, arguments, evidence, queue, rule."
    )
    plan_hash = models.TextField()
    evidence = models.JSONField(default=list)
    why = models.TextField(blank=True, help_text="The agent's own words. Untrusted.")
    requested_by = models.TextField()
    opened_at = models.DateTimeField()
    deadline = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["run", "opened_at"], name="approvals_by_run"),
            # The inbox, by queue and over all queues; what was decided; and the API's lists: each in its own order.
            models.Index(fields=["queue", "deadline", "id"], condition=models.Q(state="open"), name="approvals_open_by_queue"),
            models.Index(fields=["deadline", "id"], condition=models.Q(state="open"), name="approvals_open_by_deadline"),
            models.Index(fields=["queue", "-decided_at", "-id"], condition=~models.Q(state="open"), name="approvals_decided_by_queue"),
            models.Index(fields=["-decided_at", "-id"], condition=~models.Q(state="open"), name="approvals_decided_by_time"),
            models.Index(fields=["-opened_at", "-id"], name="approvals_by_time"),
            models.Index(fields=["state", "-opened_at", "-id"], name="approvals_by_state"),
            models.Index(fields=["queue", "state", "-opened_at", "-id"], name="approvals_by_queue_state"),
        ]
        triggers = [pgtrigger.ReadOnly(name="question_is_frozen", fields=FROZEN)]

    @transition(state, source=A.OPEN, target=A.APPROVED)
    def approve(self) -> None: ...

    @transition(state, source=A.OPEN, target=A.REJECTED)
    def reject(self) -> None: ...

    @transition(state, source=A.OPEN, target=A.EXPIRED)
    def expire(self) -> None: ...

    @transition(state, source=A.OPEN, target=A.WITHDRAWN)
    def withdraw(self) -> None: ...

    @transition(state, source=A.WITHDRAWN, target=A.OPEN)
    def reopen(self) -> None: ...


# As for runs: the declaration is the only table, and the database holds to it.
pgtrigger.register(
    pgtrigger.FSM(
        name="legal_moves_only",
        field="state",
        transitions=sorted(
            {(str(t.source), str(t.target)) for t in Approval._meta.get_field("state").get_all_transitions(Approval)}
        ),
    )
)(Approval)


class Decision(models.Model):
    """What one person decided, on what exact plan, as what, and why. Append-only."""

    id = models.BigAutoField(primary_key=True)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    verdict = models.TextField()
    plan_hash = models.TextField()
    justification = models.TextField()
    by = models.TextField()
    role = models.TextField()
    auth = models.TextField()
    address = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["approval"], name="approvals_decided_once")]
        triggers = append_only()
