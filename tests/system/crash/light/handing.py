"""Operators inject values into a resumed run, and give a run back to the pool."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runs.services.fleet import requeue
from runs.services.injecting import ContextBody, StateSeen, go_on, look
from tests.world import OLGA

WHY = "The schedule says so."


def hand(run_id: str) -> Any:
    """Resume it with the seen event's number in its state, sometimes with a message for its models."""
    seen = look(UUID(run_id))
    more = {"message": f"Seen at event {seen.seq}."} if seen.seq % 2 and not seen.stands.is_between else {}
    context = ContextBody(patch={"handed": seen.seq}, seen=StateSeen(seq=seen.seq, head=seen.head), **more)
    return go_on("resume", UUID(run_id), context, by=OLGA, justification=WHY)


def give_back(run_id: str) -> Any:
    """Take it from its worker. Raises what the act raises."""
    return requeue(UUID(run_id), by=OLGA, justification=WHY)
