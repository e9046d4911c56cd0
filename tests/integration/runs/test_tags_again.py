"""A run is visible by its tags and those of its origin; verification names missing and surplus rows."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pytest
from django.db import ProgrammingError

from ledger.verification.runs import verify
from runs.models import Run, RunTag
from runs.services import lifecycle
from runs.verification.rows import SeenBy
from tests.conftest import database_urls
from tests.integration.runs.stage import Stage
from tests.integration.runs.test_rights import acting_as
from tests.tampering import tamper
from tests.world import SHOP, agent_of, ends_with


def said(run: Run) -> list[str]:
    return verify(run.pk, using=[SeenBy]).problems


def line_of_runs(stage: Stage) -> tuple[Run, Run, Run]:
    """Return a tagged run, its child and the child's continuation, as far as rows show."""
    graph = agent_of(ends_with("well")).graph_id
    top, child, successor = (lifecycle.start(graph, {}, by=SHOP, tags=tags) for tags in (["acme"], [], []))
    Run.objects.filter(pk=child.pk).update(parent=top.pk, parent_slot="0.1/1", depth=1)
    Run.objects.filter(pk=successor.pk).update(came_from=child.pk, first=child.pk, turn=1)
    assert set(RunTag.objects.values_list("run_id", "tag")) == {(run.pk, "acme") for run in (top, child, successor)}
    return top, child, successor


def without_rows(*runs: Run) -> None:
    """Delete their tag rows, as if they had just started."""
    tamper("DELETE FROM runs_runtag WHERE run_id = ANY(%s)", [run.pk for run in runs])


def test_a_row_too_few_and_one_too_many_are_named(stage: Stage) -> None:
    top, child, _ = line_of_runs(stage)
    without_rows(child)
    (missing,) = said(child)
    tamper("INSERT INTO runs_runtag (run_id, tag, created_at) VALUES (%s, 'rival', now())", top.pk)
    (more,) = said(top)
    assert "'acme'" in missing and "can't see it" in missing
    assert "'rival'" in more and "neither it nor a run it came from has" in more


def test_someone_who_has_the_applications_rights_shows_a_run_to_nobody(
    stage: Stage, postgres: Mapping[str, str]
) -> None:
    top, _, _ = line_of_runs(stage)
    with psycopg.connect(database_urls(postgres)["runtime"]) as link:
        role = str(link.info.user)
    with acting_as(role), pytest.raises(ProgrammingError, match="permission denied"):
        RunTag.objects.create(run_id=top.pk, tag="rival", created_at=top.created_at)
