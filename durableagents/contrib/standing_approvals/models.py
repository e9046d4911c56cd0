"""Rows of standing approvals: their grant with a decision, each use, and the revocation.

All are append-only and have codes (ledger/codes.py). So forged rows approve nothing, and a standing approval that is
used up or revoked can't be used again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from ledger.models import Coded, Json, append_only

if TYPE_CHECKING:
    from durableagents.contrib.standing_approvals.terms import SameCall


class StandingGrant(Coded):
    """A person's approval of calls that are identical to the one in `approval`.

    `same` is a digest of what must be identical, and `fields` names the arguments that must be identical. The
    approval covers `count` calls and a total of `most`, in one run or all runs of an agent, and expires at `until`."""

    id = models.BigAutoField(primary_key=True)
    approval = models.OneToOneField("approvals.Approval", on_delete=models.PROTECT, related_name="standing_grant")
    run_id = models.UUIDField(help_text="The run in which it was given.")
    queue = models.TextField()
    tool = models.TextField()
    agent = models.TextField(help_text="Name of the agent, in any version.")
    is_of_run = models.BooleanField(help_text="Whether it applies to that run only.")
    same = models.TextField()
    fields = Json(help_text="Arguments that must be identical.")
    count = models.IntegerField()
    most = models.DecimalField(max_digits=36, decimal_places=6, null=True, help_text="Total amount of all uses.")
    currency = models.TextField(blank=True, default="")
    until = models.DateTimeField()
    person = models.BigIntegerField(help_text="The account of the person who gave it.")
    by = models.TextField()
    role = models.TextField()
    reason = models.TextField()
    at = models.DateTimeField()

    class Meta:
        db_table = "approvals_standinggrant"
        indexes = [
            models.Index(fields=["same", "until"], name="approvals_grant_of_same"),
            models.Index(fields=["until"], name="approvals_grant_until"),
            models.Index(fields=["run_id"], name="approvals_grant_of_run"),
            models.Index(fields=["queue", "-at", "-id"], name="approvals_grant_of_queue"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"standing grant {self.pk}"

    def is_about(self, queue: str, same_call: SameCall) -> bool:
        is_same = self.same in (same_call.same, same_call.unkeyed)
        return is_same and (self.queue, self.tool, self.agent) == (queue, same_call.tool, same_call.agent)


class StandingUse(Coded):
    """The `n`-th question that a standing approval answered, with its amount."""

    id = models.BigAutoField(primary_key=True)
    grant = models.ForeignKey(StandingGrant, on_delete=models.PROTECT, related_name="uses")
    n = models.IntegerField()
    approval = models.OneToOneField("approvals.Approval", on_delete=models.PROTECT, related_name="standing_use")
    run_id = models.UUIDField()
    amount = models.DecimalField(max_digits=36, decimal_places=6, null=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "approvals_standinguse"
        constraints = [models.UniqueConstraint(fields=["grant", "n"], name="approvals_use_once")]
        indexes = [models.Index(fields=["run_id"], name="approvals_use_of_run")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"use {self.n} of standing grant {self.grant_id}"


class StandingEnd(Coded):
    """The revocation of a standing approval, with author and reason."""

    grant = models.OneToOneField(StandingGrant, primary_key=True, on_delete=models.PROTECT, related_name="end")
    person = models.BigIntegerField(null=True)
    by = models.TextField()
    role = models.TextField()
    reason = models.TextField()
    at = models.DateTimeField()

    class Meta:
        db_table = "approvals_standingend"
        triggers = append_only()

    def __str__(self) -> str:
        return f"end of standing grant {self.grant_id}"
