"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from approvals.models import Approval
from durableagents.contrib.standing_approvals.models import StandingGrant, StandingUse
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.roles import ADMINS, EVERY, SUPERUSER

API = [
    ("GET", EVERY | {SUPERUSER}, "api-grants api-grant"),
    ("POST", ADMINS, "api-queue-grants"),
    ("POST", EVERY | {SUPERUSER}, "api-grant-end"),
]
READ = [
    (EVERY, "standing_grants standing_grant"),
]
ACT = [
    (EVERY, "standing_grant_ends"),
    (set(), "queue_grants"),
]


def standing_grant() -> StandingGrant:
    if (known := StandingGrant.objects.first()) is not None:
        return known
    given, used = Approval.objects.filter(state="approved").order_by("opened_at")[:2]
    now = timezone.now()
    row = StandingGrant(
        approval=given,
        run_id=given.run_id,
        queue=given.queue,
        tool="buy",
        agent="buyer",
        is_of_run=False,
        same="x",
        fields=["item"],
        count=3,
        until=now + timedelta(days=3),
        person=1,
        by="user:lena",
        role="approver_legal",
        reason="the same",
        at=now,
    )
    row.seal()
    row.save()
    use = StandingUse(grant=row, n=1, approval=used, run_id=used.run_id, at=now)
    use.seal()
    use.save()
    return row


SAMPLES = {"grant_id": lambda: [standing_grant().pk]}
