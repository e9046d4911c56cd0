"""Signals, answers, messages and injections over HTTP: permissions, validation, repeats, effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End, Refused
from ledger.models import OverrideRecord
from runs.api.schemas import AgentPage, RequestPage, RequestRow, RunRow, SentRow, ViewRow
from runs.engine.agents import registry
from runs.models import Message, Run
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem
from tests.integration.api.test_story import Story
from tests.integration.api.worker import working
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, dump, events, kinds
from tests.integration.runs.test_injecting import WHY, asks, deal
from tests.waiting import eventually
from tests.world import OLGA, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)


class Wanted(BaseModel):
    place: str


class Visit(BaseModel):
    day: str = Field(min_length=1)
    token: int = Field(ge=1, description="A name that a record would mask.")


@pytest.fixture
def visiting(caller: Callable[[Any], Api]) -> Iterator[Story]:
    agent = Agent("visit", "1.0.0", input=Wanted, state=Wanted)

    @agent.node(start=True)
    async def plan(state: Wanted, ctx: Context) -> End:
        visit, guests = await ctx.gather(
            ctx.ask("legal", title="When may we come?", schema=Visit, prefilled={"day": "monday"}), ctx.signal("guests")
        )
        return End({**visit.model_dump(), "guests": guests})

    agent.validate()
    with working() as host:
        story = Story(caller, host)
        story.id = caller("integrator").post("runs", {"agent": "visit", "input": {"place": "quay"}}).json()["id"]
        yield story
    registry.remove(agent.graph_id)


def question(story: Story) -> dict[str, Any]:
    run = story.until("waiting_human")
    (wait,) = [wait for wait in run["waiting_for"] if wait["kind"] == "input"]
    return dict(wait)


def test_a_run_that_asks_and_waits_goes_on_when_both_have_come(visiting: Story) -> None:
    wait = question(visiting)
    assert wait["detail"]["title"] == "When may we come?" and wait["detail"]["prefilled"] == {"day": "monday"}
    assert wait["detail"]["schema"]["properties"]["token"]["minimum"] == 1, "nothing of the schema is masked"
    address = f"runs/{visiting.id}/answers/{wait['id']}"
    lena, finance = visiting.caller("approver_legal"), visiting.caller("approver_finance")
    assert is_problem(finance.post(address, {"answer": {"day": "friday", "token": 1}}), 403, "forbidden")
    refused = lena.post(address, {"answer": {"day": "", "token": "x"}})
    assert is_problem(refused, 422, "invalid-input")
    assert [problem["field"] for problem in refused.json()["errors"]] == ["answer.day", "answer.token"]
    answered = lena.post(address, {"answer": {"day": "friday", "token": 1}, "justification": "they called"})
    assert answered.status_code == 200 and RunRow.model_validate(answered.json())
    again = visiting.caller("operator").post(address, {"answer": {"day": "sunday", "token": 2}})
    assert is_problem(again, 409, "question-closed") and again.json()["answered_by"] == "key:approver_legal"
    assert "first answer stands" in again.json()["detail"]
    visiting.until("waiting_event", kind="signal")
    sent = visiting.caller("integrator").post(f"runs/{visiting.id}/signals/guests", {"payload": ["ada", "grace"]})
    assert (sent.status_code, SentRow.model_validate(sent.json()).n) == (202, 1)
    assert visiting.until("completed")["output"] == {"day": "friday", "token": 1, "guests": ["ada", "grace"]}
    ended = visiting.caller("integrator").post(f"runs/{visiting.id}/signals/guests", {"payload": 1})
    assert is_problem(ended, 409, "illegal-state")
    fields = {row["kind"]: row for row in visiting.auditor.get(f"runs/{visiting.id}/events").json()["results"]}
    assert (
        fields["InputAnswered"]["data"]["by"] == "key:approver_legal"
        and fields["InputAnswered"]["data"]["role"] == "approver_legal"
    )
    assert fields["SignalReceived"]["data"]["by"] == "key:integrator"


@each_case(
    "body",
    [
        None,
        {},
        {"answer": {"day": "x", "token": 1}, "more": 1},
        {"answer": {"day": "a\x00", "token": 1}},
        {"answer": 2**60},
    ],
)
def test_a_body_that_is_no_answer_is_refused(visiting: Story, body: Any) -> None:
    wait = question(visiting)
    answer = visiting.caller("operator").post(f"runs/{visiting.id}/answers/{wait['id']}", body)
    assert answer.status_code in (400, 422) and is_problem(answer, answer.status_code)
    assert question(visiting) == wait


def test_signals_are_numbered_and_a_repeat_is_the_same_one(integrator: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    address = f"runs/{run}/signals/go"
    first = integrator.post(address, {"payload": {"a": 1}, "id": "m-1"})
    again = integrator.post(address, {"payload": {"a": 1}, "id": "m-1"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json() == again.json() == {"name": "go", "n": 1, "run": run}
    assert is_problem(integrator.post(address, {"payload": {"a": 2}, "id": "m-1"}), 422, "signal-mismatch")
    assert integrator.post(address, {}).json()["n"] == 2
    keyed = [integrator.post(address, {"payload": 3}, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert keyed[0].content == keyed[1].content and keyed[0].json()["n"] == 3
    other = integrator.post(address.replace("/go", "/stop"), {"payload": 3}, headers={"Idempotency-Key": "k"})
    assert is_problem(other, 422, "idempotency-mismatch"), "one key stands for one request"


class Review(BaseModel):
    topic: str = "tea"
    documents: list[str] = []


class Add(BaseModel):
    """A document to look at."""

    name: str
    pages: int = Field(default=1, ge=1, le=500)


class Count(BaseModel):
    documents: int


@pytest.fixture
def review(caller: Callable[[Any], Api]) -> Iterator[Story]:
    agent = Agent("review", "1.0.0", input=Review, state=Review, signals=["go"])

    @agent.node(start=True)
    async def collect(state: Review, ctx: Context) -> End:
        await ctx.signal("go")
        return End({"documents": state.documents})

    @agent.message(takes=Add, answers=Count)
    def add_document(state: Review, request: Add) -> Count:
        """Add a document to the review."""
        if request.name == "none":
            raise Refused("there is no such document", code="no_document")
        state.documents.append(request.name)
        return Count(documents=len(state.documents))

    @agent.view(answers=Count)
    def summary(state: Review) -> Count:
        return Count(documents=len(state.documents))

    @agent.view(answers=Count)
    def broken(state: Review) -> Count:
        state.documents.append("never")
        raise KeyError("<b>no</b>")

    @agent.view(answers=Count)
    def endless(state: Review) -> Count:
        while True:
            pass

    @agent.view(answers=Count)
    def nosy(state: Review) -> Count:
        return Count(documents=Run.objects.count())

    @agent.view(answers=Count)
    def other(state: Review) -> Any:
        return {"documents": "many"}

    agent.validate()
    with working() as host:
        story = Story(caller, host)
        story.id = caller("integrator").post("runs", {"agent": "review", "input": {}}).json()["id"]
        story.until("waiting_event")
        yield story
    registry.remove(agent.graph_id)


def ask(story: Story, who: str = "integrator", *, wait: int = 0, name: str = "add_document", **body: Any) -> Any:
    body.setdefault("body", {"name": "a"})
    return story.caller(who).post(f"runs/{story.id}/messages/{name}?wait={wait}", body)


def answered(story: Story, n: int) -> dict[str, Any]:
    def row() -> Any:
        story.host.ring()
        found = story.auditor.get(f"runs/{story.id}/messages/{n}").json()
        return None if found["outcome"] == "waiting" else found

    found = eventually(row, f"an answer to message {n}")
    RequestRow.model_validate(found)
    return dict(found)


def test_the_answer_is_waited_for_or_read_later(review: Story) -> None:
    sent = ask(review)
    assert sent.status_code == 202 and sent.headers["Location"].endswith(f"/runs/{review.id}/messages/1")
    row = answered(review, 1)
    assert (row["outcome"], row["answer"], row["error"]) == ("answered", {"documents": 1}, None)
    assert row["body"] == {"name": "a", "pages": 1} and row["answered_at"] > row["sent_at"]
    with ThreadPoolExecutor(1) as pool:
        ringing = pool.submit(ring_until, review, 2)
        waited = ask(review, wait=20, body={"name": "b"})
        ringing.result()
    assert waited.status_code == 200 and waited.json()["answer"] == {"documents": 2}
    ask(review, body={"name": "none"})
    no = answered(review, 3)
    assert (no["outcome"], no["answer"]) == ("refused", None)
    assert no["error"] == {"code": "no_document", "message": "there is no such document"}
    listed = review.auditor.get(f"runs/{review.id}/messages?limit=2").json()
    RequestPage.model_validate(listed)
    assert [x["id"] for x in listed["results"]] == [1, 2] and "after=2" in listed["next"]
    assert review.auditor.get(f"runs/{review.id}/messages?after=2").json()["results"][0]["id"] == 3


def ring_until(story: Story, n: int) -> None:
    """Wake the worker until message `n` is answered; no task queue runs in these tests."""
    try:
        answers = Message.objects.filter(n=n).exclude(outcome="")
        eventually(lambda: story.host.ring() or answers.exists(), f"an answer to message {n}")
    finally:
        connection.close()


def test_what_cant_be_taken_is_refused_with_what_can(review: Story) -> None:
    assert is_problem(ask(review, name="forget"), 422, "not-taken")
    assert ask(review, name="forget").json()["takes"] == ["add_document"]
    wrong = ask(review, body={"pages": 0})
    assert is_problem(wrong, 422, "invalid-input")
    assert {x["field"] for x in wrong.json()["errors"]} == {"body.name", "body.pages"}
    assert is_problem(ask(review, wait=31), 400, "malformed")
    assert is_problem(review.caller("operator").post(f"runs/{review.id}/messages/add_document", {}), 422)
    assert is_problem(review.caller("integrator").post(f"runs/{UUID(int=1)}/messages/add_document", {}), 404)
    for n in ("0", "7", "add_document", "-1", "9" * 30, "%D9%A1"):
        assert is_problem(review.auditor.get(f"runs/{review.id}/messages/{n}"), 404, "not-found")
    signal = review.caller("operator").post(f"runs/{review.id}/signals/stop", {})
    assert is_problem(signal, 422, "not-taken") and signal.json()["takes"] == ["go"]
    assert Message.objects.count() == 0


def test_one_id_is_one_message(review: Story) -> None:
    first = ask(review, id="4711")
    assert ask(review, id="4711").json()["id"] == first.json()["id"] == 1
    assert is_problem(ask(review, id="4711", body={"name": "b"}), 409, "message-mismatch")
    keyed = [
        review.caller("integrator").post(
            f"runs/{review.id}/messages/add_document", {"body": {"name": "k"}}, headers={"Idempotency-Key": "k"}
        )
        for _ in range(2)
    ]
    assert [x.json()["id"] for x in keyed] == [2, 2]
    assert [x.get("Idempotent-Replayed") for x in keyed] == [None, "true"]


def test_a_view_is_answered_from_the_record_also_when_the_run_is_over(review: Story) -> None:
    address = f"runs/{review.id}/views/summary"
    body = review.auditor.get(address).json()
    assert ViewRow.model_validate(body) and body["value"] == {"documents": 0}
    ask(review)
    answered(review, 1)
    before = review.now()
    assert review.auditor.get(address).json()["value"] == {"documents": 1}
    review.caller("operator").post(f"runs/{review.id}/signals/go", {})
    review.until("completed")
    assert review.auditor.get(address).json()["value"] == {"documents": 1}
    assert review.now()["seq"] > before["seq"]
    agents = review.auditor.get("agents").json()
    AgentPage.model_validate(agents)
    (row,) = [x for x in agents["results"] if x["name"] == "review"]
    assert row["signals"] == ["go"] and [x["name"] for x in row["messages"]] == ["add_document"]
    assert row["messages"][0]["doc"] == "Add a document to the review."
    assert row["messages"][0]["body_schema"]["properties"]["pages"]["maximum"] == 500


PATCH = {"terms": {"price": 12}}


@pytest.fixture
def run(stage: Stage) -> Any:  # noqa: F811
    with only_for_now():
        found = stage.start(deal(asks))
        assert stage.drive() == "parked"
        lifecycle.pause(found.id, by=OLGA, justification=WHY)
        yield found


def seen(api: Api, run: Run, **what: Any) -> dict[str, Any]:
    body: dict[str, Any] = api.post(f"runs/{run.id}/context", what).json()
    return body


def test_a_look_tells_where_it_stands_and_what_would_change(operator: Api, run: Run) -> None:
    before = dump()
    found = seen(operator, run, patch=PATCH)
    assert (found["node"], found["visit"], found["place"], found["open"]) == ("asks", "0.1", 1, ["signal go at 0.1/1"])
    assert found["changes"] == [{"path": "terms.price", "before": 10, "after": 12}]
    assert (found["state"]["terms"]["price"], found["after"]["terms"]["price"], found["hears"]) == (10, 12, False)
    assert seen(operator, run)["after"] is None and dump() == before


def test_it_goes_on_with_it_once_however_often_that_is_sent(operator: Api, run: Run) -> None:
    body = {"justification": WHY, "context": {"patch": PATCH, "seen": seen(operator, run)["seen"]}}
    key = {"headers": {"Idempotency-Key": "context-1"}}
    first = operator.post(f"runs/{run.id}/resume", body, **key)
    assert first.status_code == 200 and first.json()["state"] == "waiting_event"
    assert operator.post(f"runs/{run.id}/resume", body, **key).content == first.content
    assert kinds(run).count("ContextInjected") == 1
    assert is_problem(operator.post(f"runs/{run.id}/resume", body), 409, "illegal-state")
    assert list(OverrideRecord.objects.filter(run_id=run.id).order_by("id").values_list("action", flat=True)) == [
        "pause",
        "inject",
        "resume",
    ]
    page = operator.get(f"runs/{run.id}/events").json()
    assert "ContextInjected" in str(page)


def test_what_is_refused_is_told_by_its_field_and_changes_nothing(operator: Api, run: Run) -> None:
    at = f"runs/{run.id}/resume"
    status = seen(operator, run)["seen"]
    before = dump()
    for context, field in [
        ({"patch": {"terms": {"price": 0}}, "seen": status}, "context.patch.terms.price"),
        ({"patch": PATCH}, "context.seen"),
        ({"seen": status}, "context"),
        ({"patch": [1], "seen": status}, "context.patch"),
        ({"message": "x" * 9000, "seen": status}, "context.message"),
        ({"patch": PATCH, "seen": {"seq": status["seq"], "head": "zz"}}, "context.seen.head"),
    ]:
        answer = operator.post(at, {"justification": WHY, "context": context})
        assert is_problem(answer, 422, "invalid-input") and answer.json()["errors"][0]["field"] == field, context
    stale = {"patch": PATCH, "seen": {"seq": 2, "head": "0" * 64}}
    assert is_problem(operator.post(at, {"justification": WHY, "context": stale}), 409, "state-moved")
    response = operator.post(at, {"justification": WHY, "context": {"message": "Hello", "seen": status}})
    assert is_problem(response, 409, "context-refused") and response.json()["reason"] == "no_models"
    assert dump() == before


def test_only_operators_hand_anything_over_and_why_says_so(operator: Api, integrator: Api, auditor: Api) -> None:
    with only_for_now():
        agent = deal(asks)
        run = Run.objects.get(pk=integrator.post("runs", {"agent": agent.graph_id, "input": {}}).json()["id"])
        integrator.post(f"runs/{run.id}/pause", {"justification": WHY})
        context = {"patch": PATCH, "seen": seen(operator, run)["seen"]}
        body = {"justification": WHY, "context": context}
        assert is_problem(integrator.post(f"runs/{run.id}/resume", body), 403, "forbidden")
        for other in (integrator, auditor):
            assert is_problem(other.post(f"runs/{run.id}/context", {}), 403, "forbidden")
        fields = {a["act"]: a for a in operator.get(f"runs/{run.id}/why").json()["acts"]}
        assert "context" in fields["resume"]["body"]["properties"]
        fields = {a["act"]: a for a in integrator.get(f"runs/{run.id}/why").json()["acts"]}
        assert "context" not in fields["resume"]["body"]["properties"]
        assert operator.post(f"runs/{run.id}/resume", body).status_code == 200
        (fact,) = events(run, object)[-2:-1]
        assert fact.KIND == "ContextInjected" and (fact.visit, fact.place) == ("0.0", 0)
