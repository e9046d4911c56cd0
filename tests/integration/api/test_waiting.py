"""Signals and answers over HTTP: who may, what fits, what a repeat is, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field

from durableagents import Agent, Context, End
from runs.api.schemas import RunRow, SentRow
from runs.engine.agents import registry
from tests.integration.api.conftest import Api, is_problem
from tests.integration.api.test_story import Story
from tests.integration.api.worker import working


class Wanted(BaseModel):
    place: str


class Visit(BaseModel):
    day: str = Field(min_length=1)
    token: int = Field(ge=1, description="A name that a record would mask.")


@pytest.fixture
def visiting(caller: Callable[[Any], Api]) -> Iterator[Story]:
    """A run that asks legal when, and waits for the guests, at once; with a worker."""
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


@pytest.mark.django_db(transaction=True)
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
    told = {row["kind"]: row for row in visiting.auditor.get(f"runs/{visiting.id}/events").json()["results"]}
    assert (
        told["InputAnswered"]["data"]["by"] == "key:approver_legal"
        and told["InputAnswered"]["data"]["role"] == "approver_legal"
    )
    assert told["SignalReceived"]["data"]["by"] == "key:integrator"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
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
