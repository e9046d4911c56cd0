"""What an act that lets a run go on comes to, just after it: whether it does."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from ledger.models import Head
from runs.models import Run
from runs.queries.display import look
from runs.queries.halts.of_runs import halt_of, halted

_STANDS: Mapping[str, str] = {
    "paused": "The run is paused: it goes on once somebody resumes it.",
    "pausing": "The run is being paused: it goes on once somebody resumes it.",
    "exceeded": "The run has come to a cap of its budget: it goes on once that is raised.",
    "stopped": "The run is stopped: it goes on once an operator has looked at it.",
    "cancelling": "The run is being cancelled.",
}
_HALTED = "The run stands still under a halt: it goes on once that lets it."


def stands_still(run_id: UUID) -> str:
    """That a run does not go on by itself, and what has to be done for it; empty where it does."""
    head = Head.objects.filter(run_id=run_id).annotate(halted=halted()).first()
    run = Run.objects.get(pk=run_id)
    waits = list(run.waits.filter(resolved_at__isnull=True))
    found = _STANDS.get(look(run, head, waits), "")
    return found or (_HALTED if halt_of(head) is not None else "")


def what_comes(run_id: UUID) -> str:
    """What comes of what a run waited for."""
    return stands_still(run_id) or "The run goes on."
