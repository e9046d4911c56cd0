"""A run's children, continuations, models, node output and hook results over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from durableagents.identity.auth import issue_key
from runs.api.schemas import AskedPage, LogPage, RunPage, RunRow
from runs.models import Listener, LogLine, Run, Telling
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem, person
from tests.integration.api.family import children, family
from tests.integration.api.going import going_on
from tests.integration.api.test_story import Story
from tests.integration.api.worker import purchase_agent, working
from tests.integration.console.conftest import Reader, reader, text_of  # noqa: F401 (fixture)
from tests.integration.console.stage import settled, until
from tests.integration.console.test_live import say
from tests.integration.scale.test_reads import MAX_STATEMENTS

pytestmark = pytest.mark.django_db(transaction=True)
NONE = {"running": 0, "waiting": 0, "paused": 0, "completed": 0, "failed": 0, "cancelled": 0}


@pytest.fixture
def grown(integrator: Api) -> Iterator[Callable[..., Run]]:
    """Return a function that starts a run for these letters and waits for a state; a worker drives all runs."""

    def grow(letters: str, agent: str = "parent", state: str = "waiting_event") -> Run:
        answer = integrator.post("runs", {"agent": agent, "input": {"letters": letters}})
        return settled(Run.objects.get(pk=answer.json()["id"]), state)

    with family(), working():
        yield grow


def test_a_run_tells_of_its_children_and_they_of_it(grown: Callable[..., Run], auditor: Api) -> None:
    run = grown("fss")
    until(lambda: [one.is_told for one in children(run, "failed")] == [True], "its parent has the word of what failed")
    until(lambda: len(children(run, "waiting_event")) == 2, "the others wait")
    body = auditor.get(f"runs/{run.pk}").json()
    assert RunRow.model_validate(body)
    assert (body["parent"], body["depth"]) == (None, 0)
    assert body["children"] == NONE | {"waiting": 2, "failed": 1}
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
        "need": None,
        "need_at": None,
    }
    (own,) = auditor.get(f"runs/{child.pk}").json()["waiting_for"]
    assert (own["kind"], own["child"]) == ("signal", None)


@pytest.mark.needs("search")
def test_a_list_of_families_costs_no_more_statements(grown: Callable[..., Run], auditor: Api) -> None:
    run, other = grown("fsa"), grown("xx", state="completed")
    until(lambda: children(run, "waiting_human"), "one asks")
    for path in ("runs", f"runs/{run.pk}", f"runs/{run.pk}/children", f"runs/{other.pk}", "runs?q=parent"):
        auditor.get(path)
        with CaptureQueriesContext(connection) as found:
            assert auditor.get(path).status_code == 200
        assert len(found.captured_queries) <= MAX_STATEMENTS, (path, found.captured_queries)


@pytest.fixture
def run(integrator: Api) -> Iterator[str]:
    """A keeper that has continued as new once, under a business key."""
    with going_on(), working():
        body = integrator.post(
            "runs", {"agent": "keeper", "input": {"letters": "", "title": "Shop"}, "business_key": "shop 7"}
        ).json()
        settled(Run.objects.get(pk=body["id"]), "waiting_event")
        assert integrator.post(f"runs/{body['id']}/signals/go", {"payload": "a", "id": "1"}).status_code == 202
        until(lambda: Run.objects.filter(came_from=body["id"], state="waiting_event").exists(), "its heir")
        yield body["id"]


def test_each_names_the_next_and_the_newest_is_found(run: str, auditor: Api, integrator: Api) -> None:
    old = auditor.get(f"runs/{run}").json()
    new = auditor.get(f"runs/{run}/latest").json()
    assert RunRow.model_validate(old) and RunRow.model_validate(new)
    assert (old["state"], old["output"], old["renewed_as"], old["handed_off_to"]) == (
        "completed",
        None,
        new["id"],
        None,
    )
    assert (new["came_from"], new["turn"], new["business_key"], new["renewed_as"]) == (run, 1, "shop 7", None)
    assert new["journal"]["events"] == new["seq"] and new["journal"]["bytes"] > 100
    assert auditor.get(f"runs/{new['id']}/latest").json() == new
    assert [row["id"] for row in auditor.get("runs").json()["results"]] == [new["id"], run]
    joined = {"agent": "keeper", "input": {"letters": ""}, "business_key": "shop 7", "on_conflict": "join"}
    assert integrator.post("runs", joined).json()["id"] == new["id"]


def test_what_is_sent_to_the_old_one_reaches_the_newest_until_all_is_over(run: str, integrator: Api) -> None:
    again = integrator.post(f"runs/{run}/signals/go", {"payload": "a", "id": "1"})
    assert (again.status_code, again.json()["run"]) == (200, run), "what was sent before is the same signal"
    sent = integrator.post(f"runs/{run}/signals/go", {"payload": "b"})
    assert sent.status_code == 202 and sent.json()["run"] == integrator.get(f"runs/{run}").json()["renewed_as"]
    integrator.post(f"runs/{run}/signals/go", {"payload": "c"})
    until(lambda: Run.objects.filter(agent="desk", state="completed").exists(), "the desk")
    last = integrator.get(f"runs/{run}/latest").json()
    assert (last["agent"], last["turn"], last["output"]) == ("desk", 3, {"letters": "abc", "title": "Shop"})
    assert last["business_key"] is None
    before = integrator.get(f"runs/{last['came_from']}").json()
    assert (before["handed_off_to"], before["renewed_as"]) == (last["id"], None)
    assert is_problem(integrator.post(f"runs/{run}/signals/go", {"payload": "d"}), 409, "illegal-state")


@each_case("act", ["pause", "resume", "cancel", "retry"])
def test_acts_on_the_old_one_are_refused_with_the_name_of_the_next(run: str, operator: Api, act: str) -> None:
    answer = operator.post(f"runs/{run}/{act}", {"justification": "Look at it first."})
    assert is_problem(answer, 409, "illegal-state")
    assert operator.get(f"runs/{run}").json()["renewed_as"] in answer.json()["detail"]


def test_who_may_not_steer_the_newest_may_not_by_the_old_one(run: str, auditor: Api) -> None:
    for who in (auditor, Api(issue_key(person("stranger", "integrator"), "test"))):
        answer = who.post(f"runs/{run}/pause", {"justification": "Look at it first.", "newest": True})
        assert answer.status_code in (403, 404)
    assert not Run.objects.filter(first=run, state="paused").exists()


WHY = "The first is down."
HERE = "scripted:thinker"


@pytest.fixture
def waiting_run(caller: Callable[[Any], Api]) -> Any:
    """A run that has asked its model and waits for a supplier."""
    with purchase_agent(), working() as host:
        story = Story(caller, host).start()
        story.until("waiting_tool", kind="webhook")
        yield story


def test_only_operators_move_it(
    caller: Callable[[Any], Api], waiting_run: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    path = f"runs/{waiting_run.id}/models"
    body = caller("auditor").get(path).json()
    assert AskedPage.model_validate(body)
    assert body["results"] == [{"assistant": "thinker", "models": [HERE], "by": "system:settings"}]
    for role in ("integrator", "approver_finance", "auditor"):
        assert is_problem(caller(role).post(path, {"models": [HERE], "justification": WHY}), 403, "forbidden")
    answer = caller("operator").post(path, {"models": ["openai:gpt-4.1", HERE], "justification": WHY})
    assert answer.status_code == 200 and [row["assistant"] for row in answer.json()["results"]] == ["thinker", ""]
    assert answer.json()["results"][0]["models"] == ["openai:gpt-4.1", HERE]
    assert caller("auditor").get(path).json() == answer.json()


@each_case(
    ("body", "field"),
    [
        ({"models": ["gpt"]}, "models"),
        ({"models": "openai:gpt"}, "models"),
        ({"models": [HERE], "modle": 1}, "modle"),
        ({"models": [7]}, "models.0"),
        ({"models": ["openai:\x00"]}, "models.0"),
    ],
)
def test_faults_are_named(caller: Callable[[Any], Api], waiting_run: Story, body: dict[str, Any], field: str) -> None:
    path = f"runs/{waiting_run.id}/models"
    before = waiting_run.now()["seq"]
    answer = caller("operator").post(path, body | {"justification": WHY})
    assert is_problem(answer, 422, "invalid-input"), answer.content
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert waiting_run.now()["seq"] == before


AT = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "https://here.example/api/v1/callbacks/secret-token-of-a-call"


def says(run_id: str, *texts: str, level: str = "info") -> None:
    LogLine.objects.bulk_create(LogLine(run_id=UUID(run_id), at=AT, level=level, text=text) for text in texts)


def telling(run_id: str, **more: Any) -> None:
    given = {"lines": 3, "lost": 2, "seen": {}, "note": "", **more}
    Telling.objects.create(run_id=UUID(run_id), **given)


@pytest.fixture
def said_run(start: Callable[..., dict[str, Any]]) -> str:
    return str(start()["id"])


def test_a_runs_lines_are_listed_newest_first_and_page_by_page(said_run: str, auditor: Api) -> None:
    assert auditor.get(f"runs/{said_run}/log").json() == {"results": [], "next": None}
    says(said_run, *(f"line {n}" for n in range(7)))
    says(said_run, "it broke", level="error")
    seen, page = [], auditor.get(f"runs/{said_run}/log", limit=3).json()
    while True:
        assert LogPage.model_validate(page)
        seen += [row["text"] for row in page["results"]]
        if page["next"] is None:
            break
        page = auditor.client.get(page["next"], headers=auditor.headers).json()
    assert seen == ["it broke", *(f"line {n}" for n in reversed(range(7)))]
    assert [row["text"] for row in auditor.get(f"runs/{said_run}/log", level="error").json()["results"]] == ["it broke"]


def test_a_callbacks_token_is_shown_to_nobody(said_run: str, auditor: Api, reader: Callable[..., Reader]) -> None:  # noqa: F811
    says(said_run, f"sent to {TOKEN}")
    telling(said_run, note=TOKEN, done=1, at=AT)
    page = reader("auditor").get(f"/runs/{said_run}").content.decode()
    for value in (
        auditor.get(f"runs/{said_run}/log").content.decode(),
        auditor.get(f"runs/{said_run}").content.decode(),
        page,
    ):
        assert "callbacks/" in value and "secret-token" not in value


def test_who_may_not_read_runs_reads_no_lines(said_run: str, caller: Callable[[str | None], Api], auditor: Api) -> None:
    says(said_run, "secret")
    for who, status in ((None, 401), ("nobody", 403)):
        assert is_problem(caller(who).get(f"runs/{said_run}/log"), status)
    assert is_problem(auditor.get(f"runs/{uuid4()}/log"), 404)
    assert is_problem(auditor.get(f"runs/{said_run}/log", level="loud"), 400)
    assert is_problem(auditor.get(f"runs/{said_run}/log", before="-1"), 400)


def test_live_text_is_read_by_asking(caller: Callable[[Any], Api], start: Callable[..., Any]) -> None:
    run = Run.objects.get(pk=start()["id"])
    say(run, "half a <b>sentence</b>")
    answer = caller("auditor").get(f"runs/{run.id}/live")
    assert answer.status_code == 200
    (one,) = answer.json()["results"]
    assert (one["slot"], one["text"], one["characters"]) == ("0.1/1/0/0", "half a <b>sentence</b>", 22)
    assert Listener.objects.filter(run_id=run.id).exists()
