"""Budgets over HTTP: given at the start within the key's limit, shown with the run, raised by those with the right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from durableagents.identity.auth import issue_key
from ledger.models import Head, OverrideRecord
from runs.api.schemas import PricePage, RunRow
from runs.models import Price, Run
from runs.services.budgets import prices
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem, person
from tests.integration.api.test_story import Story
from tests.integration.api.worker import purchase_agent, working

NOTHING = {"usd": None, "tokens_in": None, "tokens_out": None, "model_calls": None, "tool_calls": None, "steps": None}
PURCHASE = {"agent": "purchase", "input": {"item": "lamp", "amount": 50}}
UNCAPPED = NOTHING | {"wall_seconds": 90 * 86_400}
WHY = "The quote is worth it."


@pytest.fixture
def purchases(caller: Callable[[Any], Api]) -> Iterator[Story]:
    with purchase_agent(), working() as host:
        yield Story(caller, host)


def started(story: Story, **budget: Any) -> dict[str, Any]:
    answer = story.caller("integrator").post("runs", PURCHASE | {"budget": budget})
    assert answer.status_code == 201, answer.content
    story.id = answer.json()["id"]
    return dict(answer.json())


def test_a_start_names_its_budget_and_every_answer_tells_it(start: Callable[..., dict[str, Any]], auditor: Api) -> None:
    run = start(budget={"usd": "12.5", "model_calls": 7, "wall_seconds": 3600})
    budget = run["budget"]
    assert budget["caps"] == NOTHING | {"usd": "12.50", "model_calls": 7, "wall_seconds": 3600}
    assert budget["used"] == {"usd": "0.00"} | dict.fromkeys(NOTHING.keys() - {"usd"}, 0)
    assert budget["left"] == NOTHING | {"usd": "12.50", "model_calls": 7}
    assert budget["reserved"] == budget["used"]
    assert (budget["cost_usd"], budget["unpriced_calls"], budget["exceeded"]) == ("0.00", 0, None)
    given = datetime.fromisoformat(budget["time_up_at"]) - datetime.fromisoformat(run["created_at"])
    assert abs(given - timedelta(hours=1)) < timedelta(seconds=5)
    assert auditor.get(f"runs/{run['id']}").json() == run and RunRow.model_validate(run)
    (listed,) = auditor.get("runs").json()["results"]
    assert listed == run


@each_case(
    ("budget", "field", "says"),
    [
        ({"usd": "-1"}, "budget.usd", "is less than 0"),
        ({"usd": 0.0000001}, "budget.usd", "6 decimal places"),
        ({"usd": "1e-999999999"}, "budget.usd", "6 decimal places"),
        ({"usd": "1e999999999"}, "budget.usd", "is more than"),
        ({"usd": "ten"}, "budget.usd", "not a number"),
        ({"usd": True}, "budget.usd", "not a number"),
        ({"model_calls": "7"}, "budget.model_calls", "not a whole number"),
        ([], "budget", "object"),
    ],
)
def test_a_wrong_cap_is_refused_by_name(integrator: Api, budget: Any, field: str, says: str) -> None:
    answer = integrator.post("runs", START | {"budget": budget})
    assert is_problem(answer, 422, "invalid-input")
    (error,) = answer.json()["errors"]
    assert error["field"] == field and says in error["problem"]
    assert not Run.objects.exists()


def limited(**budget: Any) -> Api:
    return Api(issue_key(person("shop", "integrator"), "till", budget=budget))


def test_a_key_gives_no_more_than_it_may(db: None) -> None:
    shop = limited(usd="5.00", steps=10)
    refused = shop.post("runs", START | {"budget": {"usd": "5.000001", "steps": 10}})
    assert is_problem(refused, 422, "invalid-input")
    (error,) = refused.json()["errors"]
    assert (error["field"], error["problem"]) == ("budget.usd", "5.000001 is more than this key may grant (5.00)")
    assert not Run.objects.exists()
    assert shop.post("runs", START).json()["budget"]["caps"] == UNCAPPED | {"usd": "5.00", "steps": 10}
    within = shop.post("runs", START | {"budget": {"usd": "0.01", "model_calls": 3}}).json()
    assert within["budget"]["caps"] == UNCAPPED | {"usd": "0.01", "steps": 10, "model_calls": 3}


@pytest.mark.parametrize(
    ("given", "problem"), [({"usd": "1000"}, "1000 is more than this key may grant (5.00)"), ({"usd": None}, "lifted")]
)
def test_a_key_may_not_give_later_what_it_may_not_at_a_start(db: None, given: dict[str, Any], problem: str) -> None:
    operator = Api(issue_key(person("olga", "operator"), "till", budget={"usd": "5.00"}))
    run = operator.post("runs", START).json()
    refused = operator.post(f"runs/{run['id']}/budget", {"budget": given, "justification": WHY})
    assert is_problem(refused, 422, "invalid-input") and refused.json()["errors"][0]["problem"] == problem
    assert Head.objects.get(pk=run["id"]).cap_usd_micro == 5_000_000
    within = operator.post(f"runs/{run['id']}/budget", {"budget": {"usd": "4", "steps": None}, "justification": WHY})
    assert within.status_code == 200 and within.json()["budget"]["caps"]["usd"] == "4.00"


@pytest.mark.django_db(transaction=True)
def test_a_run_that_comes_to_a_cap_says_so_and_goes_on_once_it_is_raised(purchases: Story) -> None:
    started(purchases, tool_calls=0)
    run = purchases.until("paused", kind="budget")
    budget = run["budget"]
    (wait,) = run["waiting_for"]
    assert (budget["caps"]["tool_calls"], budget["used"]["tool_calls"], budget["left"]["tool_calls"]) == (0, 0, 0)
    assert budget["exceeded"] == {
        "wait_id": wait["id"],
        "resource": "tool_calls",
        "most": 0,
        "used": 0,
        "reserved": 0,
        "wanted": 1,
        "enough": {"tool_calls": 1},
        "since": wait["since"],
        "until": wait["deadline"],
        "queue": "",
    }
    assert "resume" not in run["status"]["actions"] and budget["cost_usd"] is None and budget["unpriced_calls"] == 1
    address = f"runs/{purchases.id}/budget"
    operator = purchases.caller("operator")
    resumed = operator.post(f"runs/{purchases.id}/resume", {"justification": WHY})
    assert is_problem(resumed, 409, "illegal-state") and "Raise it" in resumed.json()["detail"]

    raised = operator.post(address, {"budget": {"tool_calls": 9}, "justification": WHY})
    assert raised.status_code == 200 and RunRow.model_validate(raised.json())
    assert raised.json()["budget"]["exceeded"] is None and raised.json()["budget"]["caps"]["tool_calls"] == 9
    record = OverrideRecord.objects.get(run_id=purchases.id)
    assert (record.action, record.by, record.justification) == ("budget", "key:operator", WHY)
    purchases.until("waiting_tool")
    # Null lifts a cap; the others stay.
    lifted = operator.post(address, {"budget": {"tool_calls": None, "steps": 99}, "justification": WHY}).json()
    assert lifted["budget"]["caps"] == UNCAPPED | {"steps": 99}


def test_operators_set_budgets_and_anyone_who_has_the_budgets_queue(
    start: Callable[..., dict[str, Any]], caller: Callable[[Any], Api], settings: Any
) -> None:
    run = start(budget={"steps": 5})
    address, body = f"runs/{run['id']}/budget", {"budget": {"steps": 9}, "justification": WHY}
    assert is_problem(caller("integrator").post(address, body), 403, "forbidden")
    for role in ("approver_finance", "approver_legal"):
        answer = caller(role).post(address, {})
        assert is_problem(answer, 403, "forbidden")
        assert answer.json()["detail"] == "Only an operator may set a run's budget."
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"budget_queue": "finance_po"})
    assert caller("approver_finance").post(address, body).json()["budget"]["caps"]["steps"] == 9
    assert OverrideRecord.objects.get().role == "approver_finance"
    refused = caller("approver_legal").post(address, body)
    assert is_problem(refused, 403) and "the queue finance_po" in refused.json()["detail"]
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"budget_queue": "nobodys"})
    assert is_problem(caller("approver_finance").post(address, body), 403)


def test_the_prices_in_force_are_listed(auditor: Api) -> None:
    now = Price.objects.order_by("-set_at").values_list("set_at", flat=True).first() or datetime.now().astimezone()
    for days, price in ((-2, 2_000_000), (-1, 3_500_000), (9, 9_000_000)):
        prices.add_price(
            "our:own", usd_micro_in=price, usd_micro_out=1, valid_from=now + timedelta(days=days), by="user:boss"
        )
    page = auditor.get("prices").json()
    assert PricePage.model_validate(page)
    (own,) = [row for row in page["results"] if row["model"] == "our:own"]
    assert (own["usd_in"], own["usd_out"], own["set_by"]) == ("3.50", "0.000001", "user:boss")
    names = [row["model"] for row in page["results"]]
    assert names == sorted(set(names))
    first = auditor.get("prices", limit=1).json()
    assert len(first["results"]) == 1 and (first["next"] is None) == (len(names) == 1)
