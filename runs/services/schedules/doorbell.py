"""A schedule's place in django-q2's scheduler: one row, which rings when the next planned time has come.

It is a doorbell, as a run's message is: lost, doubled or by a clock that is a day off, it only says *look*. What is due
the schedule's own row says, by the database's clock (`firing.py`).
"""

from __future__ import annotations

from django_q.models import Schedule as Bell

from runs.models import Schedule
from runs.services.wakeups import FIRE


def hang(schedule: Schedule) -> None:
    """Let it ring at the next planned time; not at all where there is none."""
    if schedule.next_at is None:
        Bell.objects.filter(name=str(schedule.id)).delete()
        return
    Bell.objects.update_or_create(
        name=str(schedule.id),
        defaults={
            "func": FIRE,
            "args": f"'{schedule.id}'",
            "schedule_type": Bell.ONCE,
            "repeats": -1,
            "next_run": schedule.next_at,
        },
    )
