"""Handing something to a run over HTTP: a look, the act with what was seen, a repeat, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.models import OverrideRecord
from runs.models import Run
from runs.services import lifecycle
from tests.integration.api.conftest import Api, is_problem
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, dump, events, kinds
from tests.integration.runs.test_injecting import WHY, asks, deal
from tests.world import OLGA, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
PATCH = {"terms": {"price": 12}}


@pytest.fixture
def run(stage: Stage) -> Any:  # noqa: F811
    with only_for_now():
        found = stage.start(deal(asks))
        assert stage.drive() == "parked"
        lifecycle.pause(found.id, by=OLGA, justification=WHY)
        yield found


def seen(api: Api, run: Run, **what: Any) -> dict[str, Any]:
    told: dict[str, Any] = api.post(f"runs/{run.id}/context", what).json()
    return told


def test_a_look_tells_where_it_stands_and_what_would_change(operator: Api, run: Run) -> None:
    before = dump()
    told = seen(operator, run, patch=PATCH)
    assert (told["node"], told["visit"], told["place"], told["open"]) == ("asks", "0.1", 1, ["signal go at 0.1/1"])
    assert told["changes"] == [{"path": "terms.price", "before": 10, "after": 12}]
    assert (told["state"]["terms"]["price"], told["after"]["terms"]["price"], told["hears"]) == (10, 12, False)
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
    stands = seen(operator, run)["seen"]
    before = dump()
    for context, field in [
        ({"patch": {"terms": {"price": 0}}, "seen": stands}, "context.patch.terms.price"),
        ({"patch": PATCH}, "context.seen"),
        ({"seen": stands}, "context"),
        ({"patch": [1], "seen": stands}, "context.patch"),
        ({"message": "x" * 9000, "seen": stands}, "context.message"),
        ({"patch": PATCH, "seen": {"seq": stands["seq"], "head": "zz"}}, "context.seen.head"),
    ]:
        answer = operator.post(at, {"justification": WHY, "context": context})
        assert is_problem(answer, 422, "invalid-input") and answer.json()["errors"][0]["field"] == field, context
    stale = {"patch": PATCH, "seen": {"seq": 2, "head": "0" * 64}}
    assert is_problem(operator.post(at, {"justification": WHY, "context": stale}), 409, "state-moved")
    told = operator.post(at, {"justification": WHY, "context": {"message": "Hello", "seen": stands}})
    assert is_problem(told, 409, "context-refused") and told.json()["reason"] == "no_models"
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
        told = {a["act"]: a for a in operator.get(f"runs/{run.id}/why").json()["acts"]}
        assert "context" in told["resume"]["body"]["properties"]
        told = {a["act"]: a for a in integrator.get(f"runs/{run.id}/why").json()["acts"]}
        assert "context" not in told["resume"]["body"]["properties"]
        assert operator.post(f"runs/{run.id}/resume", body).status_code == 200
        (fact,) = events(run, object)[-2:-1]
        assert fact.KIND == "ContextInjected" and (fact.visit, fact.place) == ("0.0", 0)


# --- a look takes longer than a transaction may lie idle ---
