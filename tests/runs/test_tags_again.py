"""A run is seen by its tags and by those of what it came from, also where it was started in the moment in which those
got their rows; and verification names one that isn't."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

import psycopg
import pytest
from django.db import ProgrammingError, connection

from ledger.verification.runs import verify
from runs.models import Run, RunTag
from runs.services import lifecycle
from runs.verification.tags import SeenBy
from tests.conftest import database_urls
from tests.runs.stage import Stage
from tests.runs.stories import as_superuser
from tests.runs.test_rights import acting_as
from tests.world import SHOP, agent_of, ends_with

pytestmark = pytest.mark.django_db
AGAIN = import_module("runs.migrations.0056_tags_again")


class Editor:
    """What a migration is given. It counts the statements, and does after the first one what else comes then."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.connection, self.said, self._then = self, 0, then

    @contextmanager
    def cursor(self) -> Iterator[Editor]:
        with connection.cursor() as self._cursor:
            yield self

    def execute(self, statement: str) -> None:
        self._cursor.execute(statement)
        self.said, self.rowcount = self.said + 1, self._cursor.rowcount
        if self.said == 1:
            self._then()


def said(run: Run) -> list[str]:
    return verify(run.pk, using=[SeenBy]).problems


def line_of_runs(stage: Stage) -> tuple[Run, Run, Run]:
    """A run with a tag, what it started, and what that goes on as, as far as their rows tell."""
    graph = agent_of(ends_with("well")).graph_id
    top, child, heir = (lifecycle.start(graph, {}, by=SHOP, tags=tags) for tags in (["acme"], [], []))
    Run.objects.filter(pk=child.pk).update(parent=top.pk, parent_slot="0.1/1", depth=1)
    Run.objects.filter(pk=heir.pk).update(came_from=child.pk, first=child.pk, turn=1)
    assert set(RunTag.objects.values_list("run_id", "tag")) == {(run.pk, "acme") for run in (top, child, heir)}
    return top, child, heir


def without_rows(*runs: Run) -> None:
    """As if they were started in the very moment."""
    as_superuser("DELETE FROM runs_runtag WHERE run_id = ANY(%s)", [run.pk for run in runs])


def test_what_was_started_in_the_moment_gets_its_rows_with_all_below_it(stage: Stage) -> None:
    top, child, heir = line_of_runs(stage)
    without_rows(child, heir)
    assert [bool(said(run)) for run in (top, child, heir)] == [False, True, False]
    for statements in (2, 1):  # it may be run again
        editor = Editor()
        AGAIN.repair(None, editor)
        assert set(RunTag.objects.values_list("run_id", "tag")) == {(run.pk, "acme") for run in (top, child, heir)}
        assert editor.said == statements, "one for all that lacks rows, however deep, and one that finds nothing"
    assert [said(run) for run in (top, child, heir)] == [[], [], []]


def test_what_is_started_meanwhile_under_a_run_that_has_just_got_its_rows_gets_them_too(stage: Stage) -> None:
    top, child, heir = line_of_runs(stage)
    without_rows(child)
    AGAIN.repair(None, Editor(then=lambda: without_rows(heir)))
    assert [said(run) for run in (top, child, heir)] == [[], [], []]


def test_a_row_too_few_and_one_too_many_are_named(stage: Stage) -> None:
    top, child, _ = line_of_runs(stage)
    without_rows(child)
    (missing,) = said(child)
    as_superuser("INSERT INTO runs_runtag (run_id, tag, created_at) VALUES (%s, 'rival', now())", top.pk)
    (more,) = said(top)
    assert "'acme'" in missing and "isn't shown it" in missing
    assert "'rival'" in more and "neither it nor what it came from has" in more


def test_whoever_has_the_applications_rights_shows_a_run_to_nobody(stage: Stage, postgres: Mapping[str, str]) -> None:
    top, _, _ = line_of_runs(stage)
    with psycopg.connect(database_urls(postgres)["runtime"]) as link:
        role = str(link.info.user)
    with acting_as(role), pytest.raises(ProgrammingError, match="permission denied"):
        RunTag.objects.create(run_id=top.pk, tag="rival", created_at=top.created_at)
