"""A real worker in a thread, so that pages show runs that really ran."""

from __future__ import annotations

from approvals.models import Approval
from runs.models import Run
from tests.integration.api.worker import working
from tests.waiting import eventually as until

__all__ = ["question", "settled", "until", "working"]


def settled(run: Run, *states: str) -> Run:
    """Wait until the run is in one of these states and undriven; return it."""
    query = Run.objects.filter(pk=run.pk, state__in=states, owner__isnull=True)
    found: Run = until(query.first, f"run {run.pk} {' or '.join(states)}")
    return found


def question(run: Run, revision: int = 1) -> Approval:
    query = Approval.objects.filter(run=run, revision=revision, state="open")
    found: Approval = until(query.first, f"revision {revision} of run {run.pk}")
    return found
