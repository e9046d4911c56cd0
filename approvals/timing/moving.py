"""A question's deadline is set anew in its rows, whoever does it: the journal, which its caller writes, says why."""

from __future__ import annotations

from datetime import datetime

from approvals.models import Approval, Escalation
from approvals.timing.course import read, runs_out
from ledger.clock import database_now
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


def follow(wait: Wait) -> None:
    """What a question's rows say follows the time in which its run stood still: as its journal and its calendar have
    it. While it stands, some more by way of precaution, or the same would be looked at again and again."""
    if wait.resolved_at is not None:
        return
    approval, now = Approval.objects.select_for_update().get(wait=wait), database_now()
    ends, ahead = runs_out(read(approval, wait).course, wait, now), standing.ahead_of(wait)
    put_off(approval, wait, ends if ahead is None or ahead <= now else max(ends, ahead))


def went_to(approval: Approval, n: int, to: str, cause: str, deadline: datetime, now: datetime) -> None:
    """That it is put to a further queue, as the `n`-th one, until its deadline there: the row, which nobody has yet."""
    row = Escalation(
        approval=approval,
        n=n,
        run_id=approval.run_id,
        queue=to,
        cause=cause,
        deadline=deadline,
        at=now,
    )
    row.seal()
    row.save(force_insert=True)


def look_again(approval: Approval, at: datetime | None) -> None:
    """When somebody looks at it next."""
    approval.look_at = at
    approval.save(update_fields=["look_at"])
