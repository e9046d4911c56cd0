"""A real worker in a thread, so that pages are read about runs that really ran."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from approvals.models import Approval
from runs.models import Run
from tests.integration.api.worker import working

__all__ = ["question", "settled", "until", "working"]

PATIENCE_SECONDS = 60.0


def until(found: Callable[[], Any], what: str) -> Any:
    """The first true answer; fails with `what` when there is none in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"not in time: {what}")


def settled(run: Run, *states: str) -> Run:
    """The run once it is in one of these states and no worker drives it."""
    query = Run.objects.filter(pk=run.pk, state__in=states, owner__isnull=True)
    found: Run = until(query.first, f"run {run.pk} {' or '.join(states)}")
    return found


def question(run: Run, revision: int = 1) -> Approval:
    """The run's open question of that revision."""
    query = Approval.objects.filter(run=run, revision=revision, state="open")
    found: Approval = until(query.first, f"revision {revision} of run {run.pk}")
    return found
