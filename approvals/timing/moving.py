"""A question's deadline is set anew in its rows, whoever does it: the journal, which its caller writes, says why."""

from __future__ import annotations

from datetime import datetime

from approvals.models import Approval, Escalation
from runs.models import Wait
from runs.services.halts import standing


def put_off(approval: Approval, wait: Wait, deadline: datetime) -> None:
    """Until when it is open from now on."""
    approval.deadline = wait.deadline = deadline
    approval.save(update_fields=["deadline"])
    wait.save(update_fields=["deadline"])


def count_anew(approval: Approval, wait: Wait, deadline: datetime, now: datetime) -> None:
    """The same of a deadline that runs from now on: what its run stood still under a halt before is counted in it."""
    put_off(approval, wait, deadline)
    standing.count_from(wait, now)


def went_to(approval: Approval, n: int, to: str, cause: str, deadline: datetime, now: datetime) -> None:
    """That it is put to a further queue, as the `n`-th one, until its deadline there: the row, which nobody has yet."""
    row = Escalation(
        approval=approval, n=n, run_id=approval.run_id, queue=to, cause=cause, deadline=deadline, at=now,
    )  # fmt: skip
    row.seal()
    row.save(force_insert=True)


def look_again(approval: Approval, at: datetime | None) -> None:
    """When somebody looks at it next."""
    approval.look_at = at
    approval.save(update_fields=["look_at"])
