"""Messages and views over HTTP: who waits for what, what a repeat is, what is refused, and what a broken view is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End, Refused
from runs.api.schemas import AgentPage, RequestPage, RequestRow, ViewRow
from runs.engine.agents import registry
from runs.models import Message, Run
from tests.integration.api.conftest import Api, is_problem
from tests.integration.api.test_story import Story
from tests.integration.api.worker import working

pytestmark = pytest.mark.django_db(transaction=True)


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
    """A run that takes documents until it is told to go, with a worker."""
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
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        story.host.ring()
        row = story.auditor.get(f"runs/{story.id}/messages/{n}").json()
        if row["outcome"] != "waiting":
            RequestRow.model_validate(row)
            return dict(row)
        time.sleep(0.05)
    pytest.fail("nobody answers")


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
    """There is no queue here that would call the worker."""
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not Message.objects.filter(n=n).exclude(outcome="").exists():
            story.host.ring()
            time.sleep(0.05)
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


def test_one_id_is_one_message_also_after_the_end(review: Story) -> None:
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
    answered(review, 2)
    review.caller("operator").post(f"runs/{review.id}/signals/go", {})
    review.until("completed")
    ended = ask(review, body={"name": "late"})
    assert is_problem(ended, 409, "illegal-state") and ended.json()["state"] == "completed"
    again = ask(review, id="4711")
    assert again.status_code == 200 and again.json()["outcome"] == "answered"


def test_a_view_is_answered_from_the_record_also_when_the_run_is_over(review: Story) -> None:
    address = f"runs/{review.id}/views/summary"
    shown = review.auditor.get(address).json()
    assert ViewRow.model_validate(shown) and shown["value"] == {"documents": 0}
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
