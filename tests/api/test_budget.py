"""Budgets over HTTP: given at a start within what the key may give, told with the run, raised by whoever may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from durableagents.identity.auth import issue_key
from durableagents.models import ApiKey
from ledger.models import Head, OverrideRecord
from runs.api.schemas import PricePage, RunRow
from runs.models import BudgetDefault, Price, Run, Wait
from runs.services.budgets import prices, raising
from tests.api.conftest import START, Api, is_problem, person
from tests.api.test_story import Story
from tests.api.worker import purchase_agent, working

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


# --- a start ----------------------------------------------------------------------------------------------------------


def test_a_start_names_its_budget_and_every_answer_tells_it(start: Callable[..., dict[str, Any]], auditor: Api) -> None:
    run = start(budget={"usd": "12.5", "model_calls": 7, "wall_seconds": 3600})
    told = run["budget"]
    assert told["caps"] == NOTHING | {"usd": "12.50", "model_calls": 7, "wall_seconds": 3600}
    assert told["used"] == {"usd": "0.00"} | dict.fromkeys(NOTHING.keys() - {"usd"}, 0)
    assert told["left"] == NOTHING | {"usd": "12.50", "model_calls": 7}
    assert told["reserved"] == told["used"]
    assert (told["cost_usd"], told["unpriced_calls"], told["exceeded"]) == ("0.00", 0, None)
    given = datetime.fromisoformat(told["time_up_at"]) - datetime.fromisoformat(run["created_at"])
    assert abs(given - timedelta(hours=1)) < timedelta(seconds=5)
    assert auditor.get(f"runs/{run['id']}").json() == run and RunRow.model_validate(run)
    (listed,) = auditor.get("runs").json()["results"]
    assert listed == run


def test_a_start_without_one_has_the_time_to_live_and_nothing_else(
    start: Callable[..., dict[str, Any]], auditor: Api
) -> None:
    run = start()
    assert run["budget"]["caps"] == NOTHING | {"wall_seconds": 90 * 86_400} and run["budget"]["left"] == NOTHING
    given = datetime.fromisoformat(run["budget"]["time_up_at"]) - datetime.fromisoformat(run["created_at"])
    assert abs(given - timedelta(days=90)) < timedelta(seconds=5)
    assert auditor.get(f"runs/{run['id']}").json() == run, "to the microsecond what the row says"


@pytest.mark.parametrize(
    ("budget", "field", "says"),
    [
        ({"usd": "-1"}, "budget.usd", "greater than or equal to 0"),
        ({"steps": -1}, "budget.steps", "greater than or equal to 0"),
        ({"usd": "0.0000001"}, "budget.usd", "6 decimal places"),
        ({"usd": 0.0000001}, "budget.usd", "6 decimal places"),
        ({"usd": "1e-999999999"}, "budget.usd", "6 decimal places"),
        ({"usd": "1e999999999"}, "budget.usd", "less than or equal to"),
        ({"usd": "NaN"}, "budget.usd", "finite"),
        ({"usd": "ten"}, "budget.usd", "decimal"),
        ({"usd": True}, "budget.usd", "decimal"),
        ({"model_calls": 1.5}, "budget.model_calls", "integer"),
        ({"model_calls": "7"}, "budget.model_calls", "integer"),
        ({"tool_calls": 2**31}, "budget.tool_calls", "less than or equal to"),
        ({"wall_seconds": 0}, "budget.wall_seconds", "greater than or equal to 1"),
        ([], "budget", "object"),
        ("much", "budget", "object"),
    ],
)
def test_a_wrong_cap_is_refused_by_name(integrator: Api, budget: Any, field: str, says: str) -> None:
    answer = integrator.post("runs", START | {"budget": budget})
    assert is_problem(answer, 422, "invalid-input")
    (error,) = answer.json()["errors"]
    assert error["field"] == field and says in error["problem"]
    assert not Run.objects.exists()


def test_a_resource_that_nobody_counts_is_refused_with_those_that_there_are(integrator: Api) -> None:
    answer = integrator.post("runs", START | {"budget": {"eur": "5.00"}})
    assert is_problem(answer, 422, "invalid-input")
    (error,) = answer.json()["errors"]
    assert error["field"] == "budget.eur"
    assert error["fix"] == (
        "remove it; known here: usd, tokens_in, tokens_out, model_calls, tool_calls, steps, wall_seconds"
    )
    (error,) = integrator.post("runs", START | {"budgets": {}}).json()["errors"]
    assert error["fix"] == (
        "remove it; known here: agent, input, tags, budget, business_key, on_conflict, debounce_seconds, start_at, "
        "start_before, signal, attributes, priority"
    )


def test_a_cap_in_dollars_needs_a_price_of_every_model(integrator: Api) -> None:
    with purchase_agent():
        answer = integrator.post("runs", PURCHASE | {"budget": {"usd": "5"}})
        assert is_problem(answer, 422, "invalid-input")
        (error,) = answer.json()["errors"]
        assert error == {
            "field": "budget.usd",
            "problem": "no price for scripted:thinker",
            "fix": "an admin sets it under Prices",
        }
        assert not Run.objects.exists()
        prices.put("scripted:thinker", usd_micro_in=1, usd_micro_out=1, by="user:boss")
        assert integrator.post("runs", PURCHASE | {"budget": {"usd": "5"}}).status_code == 201


def test_a_repeat_is_the_same_run_and_another_budget_another_request(integrator: Api) -> None:
    key = {"Idempotency-Key": "once"}
    first = integrator.post("runs", START | {"budget": {"steps": 5}}, headers=key)
    again = integrator.post("runs", START | {"budget": {"steps": 5}}, headers=key)
    assert (first.status_code, again.content) == (201, first.content)
    other = integrator.post("runs", START | {"budget": {"steps": 6}}, headers=key)
    assert is_problem(other, 422, "idempotency-mismatch")
    assert Run.objects.count() == 1


# --- what a key may give ----------------------------------------------------------------------------------------------


def limited(**budget: Any) -> Api:
    return Api(issue_key(person("shop", "integrator"), "till", budget=budget))


def test_a_key_gives_no_more_than_it_may(db: None) -> None:
    shop = limited(usd="5.00", steps=10)
    refused = shop.post("runs", START | {"budget": {"usd": "5.000001", "steps": 10}})
    assert is_problem(refused, 422, "invalid-input")
    (error,) = refused.json()["errors"]
    assert (error["field"], error["problem"]) == ("budget.usd", "5.000001 is more than this key may give (5.00)")
    assert not Run.objects.exists()
    assert shop.post("runs", START).json()["budget"]["caps"] == UNCAPPED | {"usd": "5.00", "steps": 10}
    within = shop.post("runs", START | {"budget": {"usd": "0.01", "model_calls": 3}}).json()
    assert within["budget"]["caps"] == UNCAPPED | {"usd": "0.01", "steps": 10, "model_calls": 3}


@pytest.mark.parametrize(
    ("given", "problem"),
    [({"usd": "1000"}, "1000 is more than this key may give (5.00)"), ({"usd": None}, "lifted")],
)
def test_what_a_key_may_not_give_at_a_start_it_may_not_give_later(
    db: None, given: dict[str, Any], problem: str
) -> None:
    operator = Api(issue_key(person("olga", "operator"), "till", budget={"usd": "5.00"}))
    run = operator.post("runs", START).json()
    refused = operator.post(f"runs/{run['id']}/budget", {"budget": given, "justification": WHY})
    assert is_problem(refused, 422, "invalid-input") and refused.json()["errors"][0]["problem"] == problem
    assert Head.objects.get(pk=run["id"]).cap_usd_micro == 5_000_000
    within = operator.post(f"runs/{run['id']}/budget", {"budget": {"usd": "4", "steps": None}, "justification": WHY})
    assert within.status_code == 200 and within.json()["budget"]["caps"]["usd"] == "4.00"


@pytest.mark.parametrize("tags", [["team:harbor"], {"team": "harbor"}])
def test_a_default_for_a_tag_fits_both_ways_of_writing_one(start: Callable[..., dict[str, Any]], tags: Any) -> None:
    BudgetDefault.objects.create(tag="team:harbor", budget={"steps": 3})
    assert start(tags=tags)["budget"]["caps"]["steps"] == 3
    assert start(tags={"team": "quay"})["budget"]["caps"]["steps"] is None


def test_a_session_is_bound_by_no_key(db: None) -> None:
    somebody = person("ada", "integrator")
    issue_key(somebody, "till", budget={"steps": 1})
    api = Api(None)
    api.client.force_login(somebody)
    assert api.post("runs", START | {"budget": {"steps": 9}}).json()["budget"]["caps"]["steps"] == 9


def test_a_key_whose_limit_was_damaged_starts_nothing(db: None) -> None:
    shop = limited(steps=10)
    for damaged in ({"steps": -1}, {"gold": 1}, [], 7, "much"):
        ApiKey.objects.update(budget=damaged)
        answer = shop.post("runs", START)
        assert is_problem(answer, 403, "forbidden") and "can't be read" in answer.json()["detail"]
    assert not Run.objects.exists()
    assert shop.get("runs").status_code == 200


def test_defaults_fill_in_what_a_start_leaves_out(start: Callable[..., dict[str, Any]]) -> None:
    BudgetDefault.objects.create(agent="order", budget={"steps": 50, "model_calls": 9})
    BudgetDefault.objects.create(tag="cheap", budget={"model_calls": 4})
    assert start()["budget"]["caps"] == UNCAPPED | {"steps": 50, "model_calls": 9}
    assert start(tags=["cheap"])["budget"]["caps"] == UNCAPPED | {"steps": 50, "model_calls": 4}
    assert start(tags=["cheap"], budget={"steps": 60})["budget"]["caps"] == UNCAPPED | {"steps": 60, "model_calls": 4}


@pytest.mark.parametrize("damaged", [{"steps": -1}, {"gold": 1}, [], "much"])
def test_a_damaged_default_is_named_and_starts_nothing(integrator: Api, damaged: Any) -> None:
    BudgetDefault.objects.create(agent="order", budget=damaged)
    answer = integrator.post("runs", START)
    assert is_problem(answer, 422, "invalid-input") and "default budget for order" in answer.json()["detail"]
    assert not Run.objects.exists()


# --- a run that came to a cap -----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_run_that_comes_to_a_cap_says_so_and_goes_on_once_it_is_raised(purchases: Story) -> None:
    started(purchases, tool_calls=0)
    run = purchases.until("paused", kind="budget")
    told = run["budget"]
    (wait,) = run["waiting_for"]
    assert (told["caps"]["tool_calls"], told["used"]["tool_calls"], told["left"]["tool_calls"]) == (0, 0, 0)
    assert told["exceeded"] == {
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
    assert not run["resumable"] and told["cost_usd"] is None and told["unpriced_calls"] == 1
    address = f"runs/{purchases.id}/budget"
    operator = purchases.caller("operator")
    resumed = operator.post(f"runs/{purchases.id}/resume", {"justification": WHY})
    assert is_problem(resumed, 409, "illegal-state") and "raise that" in resumed.json()["detail"]

    raised = operator.post(address, {"budget": {"tool_calls": 9}, "justification": WHY})
    assert raised.status_code == 200 and RunRow.model_validate(raised.json())
    assert raised.json()["budget"]["exceeded"] is None and raised.json()["budget"]["caps"]["tool_calls"] == 9
    record = OverrideRecord.objects.get(run_id=purchases.id)
    assert (record.action, record.by, record.justification) == ("budget", "key:operator", WHY)
    purchases.until("waiting_tool")
    # Lifted, where null; the others stay.
    lifted = operator.post(address, {"budget": {"tool_calls": None, "steps": 99}, "justification": WHY}).json()
    assert lifted["budget"]["caps"] == UNCAPPED | {"steps": 99}


@pytest.mark.django_db(transaction=True)
def test_after_a_raise_that_was_not_enough_the_wait_tells_what_is_lacking_now(purchases: Story) -> None:
    started(purchases, tool_calls=0)
    steps = purchases.until("paused", kind="budget")["step_index"]
    body = {"budget": {"tool_calls": 9, "steps": steps}, "justification": WHY}
    told = purchases.caller("operator").post(f"runs/{purchases.id}/budget", body).json()
    (wait,) = told["waiting_for"]
    assert (told["state"], told["budget"]["exceeded"]["resource"], wait["detail"]["resource"]) == (
        "paused",
        "steps",
        "steps",
    )
    assert "steps" in wait["detail"]["enough"] and wait["detail"]["most"] == steps


@pytest.mark.django_db(transaction=True)
def test_time_that_is_up_is_told_and_given(purchases: Story) -> None:
    started(purchases, wall_seconds=3600)
    purchases.until("waiting_tool")
    began = Run.objects.get(pk=purchases.id).created_at - timedelta(minutes=90)
    Run.objects.filter(pk=purchases.id).update(created_at=began, time_up_at=began + timedelta(hours=1))
    raising.time_is_up(Run.objects.get(pk=purchases.id).pk)
    told = purchases.until("paused")["budget"]
    assert told["time_up_at"] is None and told["exceeded"]["resource"] == "wall_seconds"
    address = f"runs/{purchases.id}/budget"
    assert told["caps"]["wall_seconds"] == 3600, "the time that there was"
    other = purchases.caller("operator").post(address, {"budget": {"steps": 9}, "justification": WHY}).json()
    assert other["state"] == "paused" and other["budget"]["caps"]["steps"] == 9
    least = other["budget"]["exceeded"]["enough"]["wall_seconds"]
    assert 5400 < least < 5500
    past = {"budget": {"wall_seconds": 5400}, "justification": WHY}
    refused = purchases.caller("operator").post(address, past)
    assert is_problem(refused, 422) and refused.json()["errors"][0]["field"] == "budget.wall_seconds"
    given = purchases.caller("operator").post(address, {"budget": {"wall_seconds": 7200}, "justification": WHY}).json()
    assert given["budget"]["time_up_at"] is not None and given["budget"]["exceeded"] is None
    purchases.until("waiting_tool")


def test_a_budget_is_set_with_a_reason_and_names_a_cap(start: Callable[..., dict[str, Any]], operator: Api) -> None:
    address = f"runs/{start(budget={'steps': 5})['id']}/budget"
    assert is_problem(operator.post(address, {"budget": {"steps": 9}}), 422, "justification-required")
    for body in ({"justification": WHY}, {"budget": None, "justification": WHY}, {"budget": {}, "justification": WHY}):
        answer = operator.post(address, body)
        assert is_problem(answer, 422, "invalid-input") and answer.json()["errors"][0]["field"] == "budget"
    wrong = operator.post(address, {"budget": {"steps": -1}, "justification": WHY})
    assert is_problem(wrong, 422) and wrong.json()["errors"][0]["field"] == "budget.steps"
    assert Head.objects.get().cap_steps == 5 and not OverrideRecord.objects.exists()


def test_a_run_that_is_over_has_no_budget_to_set(start: Callable[..., dict[str, Any]], operator: Api) -> None:
    run = start()
    operator.post(f"runs/{run['id']}/cancel", {"justification": WHY})
    answer = operator.post(f"runs/{run['id']}/budget", {"budget": {"steps": 9}, "justification": WHY})
    assert is_problem(answer, 409, "illegal-state")
    assert "can't be asked to use more." in answer.json()["detail"]


def test_operators_set_budgets_and_whoever_has_the_budgets_queue(
    start: Callable[..., dict[str, Any]], caller: Callable[[Any], Api], settings: Any
) -> None:
    run = start(budget={"steps": 5})
    address, body = f"runs/{run['id']}/budget", {"budget": {"steps": 9}, "justification": WHY}
    assert is_problem(caller("integrator").post(address, body), 403, "forbidden")
    for role in ("approver_finance", "approver_legal"):
        answer = caller(role).post(address, {})
        assert is_problem(answer, 403, "forbidden")
        assert answer.json()["detail"] == "Only an operator may set what a run may use."
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"budget_queue": "finance_po"})
    assert caller("approver_finance").post(address, body).json()["budget"]["caps"]["steps"] == 9
    assert OverrideRecord.objects.get().role == "approver_finance"
    refused = caller("approver_legal").post(address, body)
    assert is_problem(refused, 403) and "the queue finance_po" in refused.json()["detail"]
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"budget_queue": "nobodys"})
    assert is_problem(caller("approver_finance").post(address, body), 403)


@pytest.mark.django_db
@pytest.mark.parametrize("detail", [None, [], 7, {}, {"resource": ["x"], "most": "many", "used": True, "wanted": {}}])
def test_a_damaged_wait_hides_no_run(start: Callable[..., dict[str, Any]], auditor: Api, detail: Any) -> None:
    run = Run.objects.get(pk=start()["id"])
    Wait.objects.create(
        id="8d5e2f0c-6c0b-5d0e-9c7e-6f1a1a2b7f11",
        run=run,
        slot="budget/1",
        kind="budget",
        opened_at=run.created_at,
        deadline=run.created_at,
        detail=detail or {},
    )
    Wait.objects.update(detail=detail if detail is not None else {})
    told = auditor.get("runs").json()["results"][0]["budget"]["exceeded"]
    assert (told["resource"], told["most"], told["used"], told["wanted"]) == ("", None, None, None)


def test_a_raise_names_the_caps_that_it_was_decided_on(start: Callable[..., dict[str, Any]], operator: Api) -> None:
    run = start(budget={"steps": 5, "wall_seconds": 3600})
    address, seen = f"runs/{run['id']}/budget", run["budget"]["caps"]
    first = operator.post(address, {"budget": {"steps": 50}, "justification": WHY, "if_caps": seen})
    assert first.status_code == 200
    late = operator.post(address, {"budget": {"steps": 9}, "justification": WHY, "if_caps": seen})
    assert is_problem(late, 409, "stale-budget") and late.json()["caps"]["steps"] == 50
    assert late.json()["errors"] == [
        {"field": "budget.steps", "problem": "was 5, is 50 now", "fix": "look again"},
    ]
    assert Head.objects.get().cap_steps == 50 and OverrideRecord.objects.count() == 1
    now = first.json()["budget"]["caps"]
    again = operator.post(address, {"budget": {"steps": 9}, "justification": WHY, "if_caps": now})
    assert again.json()["budget"]["caps"]["steps"] == 9
    for wrong in ({"gold": 1}, [], "x", {"steps": -1}, {}):
        answer = operator.post(address, {"budget": {"steps": 8}, "justification": WHY, "if_caps": wrong})
        assert is_problem(answer, 422) and answer.json()["errors"][0]["field"].startswith("if_caps"), wrong
    assert Head.objects.get().cap_steps == 9


@pytest.mark.django_db(transaction=True)
def test_too_little_is_answered_with_what_would_be_enough(purchases: Story) -> None:
    started(purchases, tool_calls=0, steps=1)
    assert purchases.until("paused")["budget"]["exceeded"]["enough"] == {"steps": 2, "tool_calls": 1}
    operator, address = purchases.caller("operator"), f"runs/{purchases.id}/budget"
    told = operator.post(address, {"budget": {"tool_calls": 9}, "justification": WHY}).json()
    assert (told["state"], told["resumable"]) == ("paused", False)
    assert told["budget"]["exceeded"]["enough"] == {"steps": 2} and told["budget"]["caps"]["tool_calls"] == 9
    enough = told["budget"]["exceeded"]["enough"]
    told = operator.post(address, {"budget": enough, "justification": WHY}).json()
    assert told["budget"]["exceeded"] is None and told["state"] != "paused"
    purchases.until("waiting_tool", kind="webhook")


# --- prices -----------------------------------------------------------------------------------------------------------


def test_the_prices_in_force_are_listed(auditor: Api) -> None:
    now = Price.objects.order_by("-set_at").values_list("set_at", flat=True).first() or datetime.now().astimezone()
    for days, price in ((-2, 2_000_000), (-1, 3_500_000), (9, 9_000_000)):
        prices.put(
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
