"""Two people settle an unknown outcome over HTTP: permissions and the answers to each."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from durableagents.identity import rights
from ledger import events as e
from ledger.actors import Actor
from runs.models import Run, Wait
from tests.contrib.change_control.test_settling import FAMILIES, SEEN, guarded
from tests.integration.api.conftest import Api, auditor, caller, integrator, is_problem, operator, order_agent  # noqa: F401 (fixtures)
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, dump, events, kinds, output, problems
from tests.world import Toolbox, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
SAID = {"verdict": "happened", "receipt": SEEN, "justification": WHY}


class Signed:
    def __init__(self, name: str) -> None:
        self.client = Client()
        self.client.force_login(User.objects.get(username=name))

    def post(self, path: str, body: Any) -> Any:
        return self.client.post(f"/api/v1/{path}", body, content_type="application/json")

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/v1/{path}")


@pytest.fixture
def run(stage: Stage, tools: Toolbox) -> Any:
    with only_for_now():
        boss()
        somebody("second", is_superuser=True, is_staff=True)
        for name in ("ann", "ben"):
            somebody(name, "operator")
        guarded(*FAMILIES)
        yield Situations(stage, tools).make("unknown")


@pytest.fixture
def ann(run: Run) -> Signed:
    return Signed("ann")


@pytest.fixture
def ben(run: Run) -> Signed:
    return Signed("ben")


def test_the_first_is_answered_202_and_the_second_200(
    run: Run,
    stage: Stage,
    ann: Signed,
    ben: Signed,
    auditor: Api,
) -> None:
    first = ann.post(f"runs/{run.id}/reconcile", SAID)
    assert first.status_code == 202 and first.json()["state"] == "waiting_human"
    (wait,) = first.json()["waiting_for"]
    proposed = wait["proposed"]
    assert (proposed["n"], proposed["by"], proposed["verdict"], proposed["receipt"]) == (
        0,
        "user:ann",
        "happened",
        SEEN,
    )
    assert (proposed["justification"], proposed["news"], proposed["seq"]) == (WHY, None, len(kinds(run)))
    assert auditor.get(f"runs/{run.id}").json()["waiting_for"][0]["proposed"] == proposed
    why = ben.get(f"runs/{run.id}/why").json()
    assert "user:ann says that it happened. A second operator must confirm it" in why["status"]["sentence"]
    assert why["status"]["who"]["roles"] == ["operator"] and proposed["seq"] in [x["seq"] for x in why["evidence"]]
    body = {"verdict": "happened", "agrees_with": 0, "wait_id": wait["id"], "justification": WHY}
    assert ben.post(f"runs/{run.id}/reconcile", body).status_code == 200
    assert stage.drive() == "completed" and output(run) == "seen there" and problems(run) == []
    (settled,) = events(run, e.ToolReconciled)
    assert settled.by == "user:ben" and settled.payload["receipt"] == SEEN


def test_what_is_refused_changes_nothing(run: Run, ann: Signed, ben: Signed, operator: Api) -> None:
    ann.post(f"runs/{run.id}/reconcile", SAID)
    wait = str(Wait.objects.get(run=run, kind="reconcile").pk)
    before = dump()
    at, back = f"runs/{run.id}/reconcile", f"runs/{run.id}/reconcile/withdraw"
    assert is_problem(ann.post(at, SAID), 409, "already-said")
    assert is_problem(operator.post(at, SAID), 403, "forbidden")
    for body in (
        {"verdict": "happened", "agrees_with": 1},
        {"verdict": "did_not", "agrees_with": 0},
        {"verdict": "happened", "receipt": {"ref": "x"}, "agrees_with": 0},
    ):
        assert is_problem(ben.post(at, body | {"justification": WHY, "wait_id": wait}), 409, "said-otherwise")
    assert is_problem(ben.post(at, SAID | {"agrees_with": 0}), 422, "invalid-input")  # a repeat could mean another call
    assert is_problem(ben.post(at, SAID | {"agrees_with": -1}), 422, "invalid-input")
    assert is_problem(ben.post(back, {"wait_id": wait, "justification": WHY}), 403, "forbidden")
    assert is_problem(ann.post(back, {"wait_id": str(uuid4()), "justification": WHY}), 409, "nothing-proposed")
    assert is_problem(ann.post(back, {"justification": WHY}), 422, "invalid-input")
    assert dump() == before
    taken = ann.post(back, {"wait_id": wait, "justification": WHY})
    assert taken.status_code == 200 and taken.json()["waiting_for"][0]["proposed"] is None
    assert is_problem(ann.post(back, {"wait_id": wait, "justification": WHY}), 409, "nothing-proposed")


def test_someone_who_may_not_read_what_the_run_holds_reads_no_receipt(run: Run, ann: Signed) -> None:
    ann.post(f"runs/{run.id}/reconcile", SAID)
    somebody("eve", "approver_finance")
    (found,) = Signed("eve").get(f"runs/{run.id}").json()["waiting_for"]
    assert found["proposed"]["receipt"] is None and found["proposed"]["by"] == "user:ann"
    # nor can they agree with what they can't read, whatever they may settle
    by = User.objects.get(username="boss")
    shell = Actor("os", "root", role="admin", auth="shell", person=by.pk)
    rights.let_role_read_payloads("operator", False, by=shell, justification=WHY)
    body = {"verdict": "happened", "agrees_with": 0, "wait_id": found["id"], "justification": WHY}
    assert is_problem(Signed("ben").post(f"runs/{run.id}/reconcile", body), 403, "payloads-hidden")
    assert "ToolReconciled" not in kinds(run)


def test_calls_without_a_known_outcome_are_listed_over_all_runs(
    run: Run,
    stage: Stage,
    tools: Toolbox,
    ann: Signed,
    integrator: Api,
) -> None:
    more = Situations(stage, tools)
    callback, outage = more.make("at_callback"), more.make("in_outage")
    for name in ("at_gate", "asleep", "completed", "cancelled", "paused_pending"):
        more.make(name)
    found: list[dict[str, Any]] = []
    answer = ann.get("effects?limit=1").json()
    while answer["next"]:
        found, answer = found + answer["results"], ann.get(answer["next"].partition("/api/v1/")[2]).json()
    found += answer["results"]
    wait = Wait.objects.get(run=run, resolved_at=None)
    assert [(row["run"], row["status"]) for row in found] == [
        (str(run.pk), "unknown"),
        (str(callback.pk), "accepted"),
        (str(outage.pk), "pending"),
    ]
    assert found[0]["wait"] == str(wait.pk)
    tool = found[0]["tool"]
    for query, length in ((f"status=unknown&tool={tool}", 1), ("agent=nobody", 0), (f"tool={tool}'--", 0)):
        assert len(ann.get(f"effects?{query}").json()["results"]) == length, query
    assert is_problem(ann.get("effects?status=lost"), 400) and is_problem(ann.get("effects?cursor=1.x"), 400)
    assert integrator.get("effects").json() == {"results": [], "next": None}  # sees only its own runs
    page = ann.client.get("/reconcile?show=effects&status=unknown&agent=%00&beyond=nonsense").content.decode()
    assert f"/runs/{run.pk}" in page and "Settle" in page and str(callback.pk) not in page
    body = SAID | {"wait_id": found[0]["wait"], "verdict": "fail", "receipt": None}
    assert ann.post(f"runs/{run.pk}/reconcile", body).status_code in (200, 202)
