"""Runs that are not to be begun yet: behind whom they are queued."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

from runs.models import ENDED, NEVER, Run, State


def is_behind(run: Run) -> bool:
    """Whether it waits for its turn."""
    return run.is_queued and run.state not in ENDED


def ahead(runs: Iterable[Run]) -> dict[UUID, UUID]:
    """Of those that are queued behind others of their key: which run lives now. In one query, and none where none is
    queued; nobody lives in the moment between an end and the next one's turn."""
    queued = [run for run in runs if is_behind(run)]
    if not queued:
        return {}
    rows = (
        Run.objects.filter(
            agent__in={run.agent for run in queued},
            business_key__in={run.business_key for run in queued},
            ended_at__isnull=True,
            is_queued=False,
        )
        .exclude(business_key="")
        .values_list("agent", "business_key", "id")
    )
    living = {(agent, key): run_id for agent, key, run_id in rows}
    found = {run.id: living.get((run.agent, run.business_key)) for run in queued}
    return {run_id: one for run_id, one in found.items() if one is not None}


def is_early(run: Run) -> bool:
    """Whether its time to begin is still to come."""
    return run.state == State.PENDING and run.ready_at not in (None, NEVER) and run.ready_at > datetime.now(UTC)
