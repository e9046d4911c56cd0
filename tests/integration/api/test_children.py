"""Runs that runs started, over HTTP: whose they are, how many are in which state, and that one which stops for a person
shows where it is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.api.schemas import RunPage, RunRow
from runs.models import Run
from tests.integration.api.conftest import Api
from tests.integration.api.family import children, family
from tests.integration.api.worker import working
from tests.integration.console.stage import settled, until
from tests.integration.scale.test_reads import MOST_STATEMENTS

pytestmark = pytest.mark.django_db(transaction=True)
NONE = {"running": 0, "waiting": 0, "paused": 0, "completed": 0, "failed": 0, "cancelled": 0}


@pytest.fixture
def grown(integrator: Api) -> Iterator[Callable[..., Run]]:
    """A run of an agent for these letters, once it is in a state, with a worker that drives everything."""

    def grow(letters: str, agent: str = "parent", state: str = "waiting_event") -> Run:
        answer = integrator.post("runs", {"agent": agent, "input": {"letters": letters}})
        return settled(Run.objects.get(pk=answer.json()["id"]), state)

    with family(), working():
        yield grow


def test_a_run_tells_of_its_children_and_they_of_it(grown: Callable[..., Run], auditor: Api) -> None:
    run = grown("fss")
    until(lambda: [one.is_told for one in children(run, "failed")] == [True], "its parent has the word of what failed")
    until(lambda: len(children(run, "waiting_event")) == 2, "the others wait")
    told = auditor.get(f"runs/{run.pk}").json()
    assert RunRow.model_validate(told)
    assert (told["parent"], told["depth"]) == (None, 0)
    assert told["children"] == NONE | {"waiting": 2, "failed": 1}
    page = auditor.get(f"runs/{run.pk}/children").json()
    assert RunPage.model_validate(page) and page["next"] is None
    assert [row["id"] for row in page["results"]] == [
        str(child.pk) for child in Run.objects.filter(parent=run.pk).order_by("-created_at", "-id")
    ]
    for row in page["results"]:
        slot = Run.objects.get(pk=row["id"]).parent_slot
        assert row["parent"] == {"id": str(run.pk), "slot": slot, "attempt": 0} and row["depth"] == 1
        assert row["children"] == NONE and auditor.get(f"runs/{row['id']}").json() == row


def test_the_list_of_children_goes_on_where_it_stopped(grown: Callable[..., Run], auditor: Api) -> None:
    run = grown("x" * 7, state="completed")
    seen, page = [], auditor.get(f"runs/{run.pk}/children", limit=3).json()
    while True:
        seen += [row["id"] for row in page["results"]]
        if page["next"] is None:
            break
        page = auditor.client.get(page["next"], headers=auditor.headers).json()
    assert len(seen) == len(set(seen)) == 7
    assert auditor.get(f"runs/{run.pk}").json()["children"] == NONE | {"completed": 7}
    assert auditor.get(f"runs/{seen[0]}/children").json() == {"results": [], "next": None}


def test_a_wait_tells_how_its_child_is(grown: Callable[..., Run], auditor: Api) -> None:
    run = grown("s")
    (child,) = until(lambda: children(run, "waiting_event"), "the child waits")
    (wait,) = auditor.get(f"runs/{run.pk}").json()["waiting_for"]
    assert (wait["kind"], wait["detail"]["child"]) == ("child", str(child.pk))
    assert wait["child"] == {
        "id": str(child.pk),
        "state": "waiting_event",
        "status": "waiting",
        "need": None,
        "need_at": None,
    }
    (own,) = auditor.get(f"runs/{child.pk}").json()["waiting_for"]
    assert (own["kind"], own["child"]) == ("signal", None)


def test_a_list_of_families_costs_no_more_statements(grown: Callable[..., Run], auditor: Api) -> None:
    run, other = grown("fsa"), grown("xx", state="completed")
    until(lambda: children(run, "waiting_human"), "one asks")
    for path in ("runs", f"runs/{run.pk}", f"runs/{run.pk}/children", f"runs/{other.pk}", "runs?q=parent"):
        auditor.get(path)
        with CaptureQueriesContext(connection) as found:
            assert auditor.get(path).status_code == 200
        assert len(found.captured_queries) <= MOST_STATEMENTS, (path, found.captured_queries)
