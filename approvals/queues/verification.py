"""Whether what administrators set up was written by this installation: queues, limits, deputies, channels, policies,
calendars, deadlines and absences; and the devices of people. Each row's code says so; the acts say who did it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from approvals.models import Absence, Calendar, Policy, StandingEnd, StandingGrant, StandingUse, Timing
from approvals.outbox import Channel, Device
from approvals.queue_models import Deputy, Limit, Queue
from approvals.queues.labels import BY
from approvals.rules.rows import is_sealed
from ledger.models import Coded
from ledger.verification import registers
from ledger.verification.registers import Listed
from runs.models import PolicyRevision

MOST = 1000  # problems of one kind that are told
_WHAT: dict[type[Coded], Callable[[Any], str]] = {
    Queue: lambda row: f"queue {row.name}",
    Limit: lambda row: f"limit {row.pk}",
    Deputy: lambda row: f"deputy {row.pk}",
    Channel: lambda row: f"channel {row.pk}",
    Device: lambda row: f"device {row.pk}",
    Policy: lambda row: f"policy {row}",
    Calendar: lambda row: f"calendar {row.name!r}, version {row.version},",
    Timing: lambda row: f"what queue {row.queue_id} says of deadlines, version {row.version},",
    Absence: lambda row: f"absence {row.pk}",
    StandingGrant: str,
    StandingUse: str,
    StandingEnd: str,
}


def every_row() -> Listed | None:
    """All of them. None where there is nothing but the queues that the settings name, as they were put in."""
    count = Queue.objects.exclude(set_by=BY).count() + PolicyRevision.objects.count()
    count += sum(model._default_manager.count() for model in _WHAT if model is not Queue)
    found = [problem for model in _WHAT for problem in islice(_wrong(model), MOST)]
    found += islice(_wrong_revisions(), MOST)
    return (
        Listed("what is set up", count + Queue.objects.filter(set_by=BY).count(), "", found) if count or found else None
    )


def _wrong(model: type[Coded]) -> Iterator[str]:
    for row in model._default_manager.order_by("pk").iterator():
        if not row.is_genuine:
            yield f"{_WHAT[model](row)} was not written with this installation's key, or was changed"


def _wrong_revisions() -> Iterator[str]:
    for row in PolicyRevision.objects.order_by("pk").iterator():
        if not is_sealed(row):
            yield f"revision {row.revision} of the policies was not written with this installation's key"


def plug_in() -> None:
    """Add to the verification of what belongs to no run."""
    if every_row not in registers.more:
        registers.more.append(every_row)
