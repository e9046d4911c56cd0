"""Ended runs of some age, policies, holds, and a picture of all rows of runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connection

from durableagents.contrib.retention import holds, policies, tables
from durableagents.contrib.retention.models import Archive, Hold, Policy
from ledger.actors import Actor
from ledger.verification.runs import verify
from runs.models import Run
from tests.integration.runs.stage import Stage, calling
from tests.world import Toolbox

SHELL = Actor("os", "ops", auth="shell")


def policy(**given: Any) -> Policy:
    body = policies.RetentionPolicyBody(**{"archive_days": 30, "justification": "we keep a month"} | given)
    return policies.create(body, by=SHELL)


def hold(**given: Any) -> Hold:
    return holds.place(holds.LegalHoldBody(**{"justification": "a court asked"} | given), by=SHELL)


@contextmanager
def as_runtime() -> Iterator[None]:
    """Let this connection have the rights of the role of web and workers."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION AUTHORIZATION durableagents")
        try:
            yield
        finally:
            cursor.execute("RESET SESSION AUTHORIZATION")


def age(run_id: UUID, days: int = 40) -> None:
    """Let a run have ended so many days earlier."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_run SET ended_at = ended_at - make_interval(days => %s) WHERE id = %s", [days, run_id]
        )


def ended(stage: Stage, tools: Toolbox, text: str = "a desk", *, tool: str = "order", days: int = 40) -> Run:
    """Return a completed run of that age."""
    run = stage.start(calling(tools, tool, text))
    stage.settle(run)
    age(run.pk, days)
    return run


def gone(*run_ids: UUID) -> bool:
    """Return whether nothing of these runs is left in the tables that are archived."""
    return not any(picture(run_id) for run_id in run_ids)


def picture(run_id: UUID) -> dict[str, list[str]]:
    """Return all rows of a run, by table."""
    found = {}
    with connection.cursor() as cursor:
        for table, condition, _ in tables.rows():
            cursor.execute(
                f"SELECT row_to_json(t)::text FROM {table} t WHERE {condition.replace('$1', '%s')} ORDER BY 1", [run_id]
            )
            if rows := [text for (text,) in cursor.fetchall()]:
                found[table] = rows
    return found


def archived(run_id: UUID) -> Archive:
    return Archive.objects.filter(run_id=run_id).latest("pk")


def problems(run_id: UUID) -> list[str]:
    return verify(run_id).problems
