"""Deciding over HTTP, as a client of the API sees it: stages with four eyes, a quorum with an abstention, a deputy, and
sixty-four at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from approvals.models import Decision
from durableagents import Gate
from runs.models import Run
from tests.integration.api.conftest import Api, is_problem, issue_key, person
from tests.integration.approvals.setup import WHY
from tests.integration.approvals.test_stages import LEGAL_THEN_TWO, ONE, buying
from tests.integration.runs.conftest import outside, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.stage import Stage, fresh, output, problems
from tests.world import Outside, Toolbox, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
FINANCE, LEGAL = "approver_finance", "approver_legal"


class People:
    """Callers by their names, each with a key of their own."""

    def __init__(self) -> None:
        self.known: dict[str, Api] = {}

    def join(self, name: str, *roles: str) -> Api:
        self.known[name] = Api(issue_key(person(name, *roles), "test"))
        return self.known[name]

    def say(self, name: str, verdict: str = "approve", **more: Any) -> Any:
        """On the one question that is open."""
        (asked,) = self.known[name].get("approvals?state=open").json()["results"]
        body = {"verdict": verdict, "plan_hash": asked["plan_hash"], "justification": WHY} | more
        return self.known[name].post(f"approvals/{asked['id']}/decision", body)


@pytest.fixture
def people(stage: Stage) -> People:  # noqa: F811
    return People()


@pytest.fixture
def ask(stage: Stage, tools: Toolbox) -> Any:  # noqa: F811
    """Put a question by this gate."""
    with only_for_now():

        def asked(gate: Gate) -> Run:
            run = stage.start(buying(tools, gate))
            assert stage.drive() == "parked"
            return run

        yield asked


def test_two_stages_a_quorum_with_an_abstention_and_a_deputy(
    ask: Callable[[Gate], Run],
    people: People,
    stage: Stage,  # noqa: F811
    outside: Outside,  # noqa: F811
) -> None:
    run = ask(LEGAL_THEN_TWO)
    people.join("lena", LEGAL)
    for name in ("fiona", "frank", "gina"):
        people.join(name, FINANCE)
    people.join("dora", FINANCE)
    people.join("both", LEGAL, FINANCE)
    # the first stage is legal's alone
    assert is_problem(people.say("fiona"), 403, "forbidden")
    assert people.say("both").status_code == 200
    assert stage.drive() == "parked" and outside.requests == []
    # nobody has a part in two stages, whatever roles they hold
    assert is_problem(people.say("both"), 409, "already-voted")
    # who stays out of it has had their say, and counts for nobody
    assert people.say("gina", "abstain").json()["state"] == "open"
    assert is_problem(people.say("gina"), 409, "already-voted")
    assert people.say("fiona").json()["state"] == "open" and stage.drive() == "idle"
    # whoever stands in for somebody who has spoken is not a second one
    until = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    named = people.known["fiona"].post("deputies", {"deputy": "lena", "ends_at": until, "justification": WHY})
    assert named.status_code in (200, 201)
    assert people.say("lena").status_code in (403, 409)
    named = people.known["frank"].post("deputies", {"deputy": "dora", "ends_at": until, "justification": WHY})
    assert named.status_code in (200, 201)
    decided = people.say("dora")
    assert decided.status_code == 200 and decided.json()["state"] == "approved"
    assert is_problem(people.known["frank"].get("approvals/" + decided.json()["id"] + "/nothing"), 404)
    assert stage.drive() == "completed" and len(outside.requests) == 1
    said = list(Decision.objects.order_by("id").values_list("by", "verdict"))
    assert said == [("key:both", "approve"), ("key:gina", "abstain"), ("key:fiona", "approve"), ("key:dora", "approve")]
    assert problems(run) == [] and output(run).startswith("pay:")


def test_sixty_four_at_once_and_one_is_first_and_the_others_are_told_who_and_when(
    ask: Callable[[Gate], Run],
    people: People,
    stage: Stage,  # noqa: F811
    outside: Outside,  # noqa: F811
) -> None:
    run = ask(ONE)
    names = [f"f{n}" for n in range(64)]
    for name in names:
        people.join(name, FINANCE)
    (asked,) = people.known["f0"].get("approvals?state=open").json()["results"]
    at = f"approvals/{asked['id']}/decision"

    def decide(n: int) -> Any:
        verdict = ("approve", "reject", "fail")[n % 3]
        body = {"verdict": verdict, "plan_hash": asked["plan_hash"], "justification": f"{WHY}, says f{n}"}
        try:
            for _ in range(20):
                answer = people.known[f"f{n}"].post(at, body)
                if answer.status_code != 503:  # a busy machine lets nobody wait for long, and says: try again
                    break
            return answer
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(decide, range(64)))
    won = [n for n, answer in enumerate(answers) if answer.status_code == 200]
    assert len(won) == 1 and Decision.objects.count() == 1
    (winner,) = Decision.objects.all()
    assert winner.by == f"key:f{won[0]}" and winner.justification.endswith(f"says f{won[0]}")
    for n, answer in enumerate(answers):
        if n != won[0]:
            assert is_problem(answer, 409, "already-decided"), answer.content
            told = answer.json()["detail"]
            assert winner.by in told and f"{winner.at:%H:%M}" in told, told
    ended = stage.drive()
    assert ended in ("completed", "failed") and len(outside.requests) == (winner.verdict == "approve")
    assert str(fresh(run).state) == ended and problems(run) == []
