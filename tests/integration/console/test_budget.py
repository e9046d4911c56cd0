"""Budgets on the console: given in the start form, shown on the page and in lists, raised by whoever may."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ledger.models import Event, Head, OverrideRecord
from runs.engine.budget.limits import Budget
from runs.models import Run
from runs.services import lifecycle
from runs.services.budgets import raising
from tests.cases import each_case
from tests.integration.console.conftest import SHOP, Reader, filled_in, start, text_of
from tests.integration.console.stage import settled, working
from tests.world import OLGA

pytestmark = pytest.mark.django_db
WHY = "It is worth it."


def stopped_run(**budget: Any) -> Run:
    """A run that a real worker drove up to its cap."""
    asked = Budget.model_validate(budget or {"tool_calls": 0})
    run = lifecycle.start("buyer", {"item": "chairs", "ending": "unknown"}, by=SHOP, budget=asked)
    with working():
        return settled(run, "paused")


def overdue_run() -> Run:
    """A run that was given an hour, which is over."""
    run = lifecycle.start("buyer", {"item": "chairs"}, by=SHOP, budget=Budget(wall_seconds=3600))
    began = run.created_at - timedelta(hours=2)
    Run.objects.filter(pk=run.pk).update(created_at=began, time_up_at=began + timedelta(hours=1))
    raising.time_is_up(run.pk)
    return Run.objects.get(pk=run.pk)


# --- a run that stands still at a cap ---------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_run_at_its_cap_says_which_who_may_raise_it_and_what_happens_then(operator: Reader) -> None:
    run = stopped_run()
    page = operator.read(f"/runs/{run.id}")
    for said in (
        "needs budget",
        "tool calls: needs 1, 0 of 0 left",
        "stands still until an operator raises it",
        "Tool calls cap 0 used 0 set aside 0 left 0 needed next 1 enough would be 1",
        "who may raise it Operator",
        "the run ends as cancelled",
        "what it did stays as it is",
        "No worker is held.",
    ):
        assert said in page, said
    html = operator.get(f"/runs/{run.id}").content.decode()
    assert re.findall(r'id="act-(\w+)"', html) == ["pause", "cancel"], "resuming would not help"
    assert filled_in(html)["budget.tool_calls"] == "2" and filled_in(html)["budget.usd"] == ""


@pytest.mark.django_db(transaction=True)
def test_whoever_may_raises_it_and_the_run_goes_on(operator: Reader) -> None:
    run = stopped_run()
    form = filled_in(operator.get(f"/runs/{run.id}").content.decode())
    answer = operator.client.post(f"/runs/{run.id}/budgets", form | {"justification": WHY}, follow=True)
    page = text_of(answer)
    assert "The budget is set. It is on the record." in page and "0 of 2" in page and "2 left" in page
    assert Head.objects.get(pk=run.pk).cap_tool_calls == 2 and Run.objects.get(pk=run.pk).state == "running"
    record = OverrideRecord.objects.get(run_id=run.pk)
    assert (record.action, record.by, record.justification) == ("budget", "user:operator", WHY)
    assert "“It is worth it.”" in operator.read(f"/runs/{run.id}", tab="decisions")
    assert "budget" in operator.read("/audit", action="budget")
    twice = operator.post(f"/runs/{run.id}/budgets", justification=WHY)
    assert twice.status_code == 422 and "name a cap" in text_of(twice)


@each_case(
    ("typed", "field", "says"),
    [
        ({"budget.usd": "-1"}, "budget.usd", "greater than or equal to 0"),
        ({"budget.usd": "<b>much</b>"}, "budget.usd", "decimal"),
        ({"budget.usd": "0.0000001"}, "budget.usd", "6 decimal places"),
        ({"budget.model_calls": "--5"}, "budget.model_calls", "integer"),
        ({"budget.model_calls": "9" * 5000}, "budget.model_calls", "integer"),
        ({"budget.steps": "1.5"}, "budget.steps", "integer"),
        ({"budget.wall_seconds": "soon"}, "budget.wall_seconds", "no number of hours"),
        ({"budget.wall_seconds": "1e999999999"}, "budget.wall_seconds", "no number of hours"),
        ({"budget.wall_seconds": "0"}, "budget.wall_seconds", "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_nothing_typed_is_lost(
    operator: Reader, typed: dict[str, str], field: str, says: str
) -> None:
    run = start()
    answer = operator.post(f"/runs/{run.id}/budgets", **typed, justification=WHY)
    html = answer.content.decode()
    assert answer.status_code == 422 and WHY in html and "<b>much" not in html
    assert says in re.findall(rf'id="f-{field.replace(".", "-")}_error">\s*(.*?)</span>', html, re.DOTALL)[0]
    assert filled_in(html)[field] == next(iter(typed.values())).replace("<", "&lt;").replace(">", "&gt;") or (
        "much" in filled_in(html)[field]
    )
    assert not OverrideRecord.objects.exists() and Event.objects.filter(run_id=run.pk).count() == 1


def test_a_form_from_before_somebody_raised_it_shows_both_and_undoes_nothing(operator: Reader) -> None:
    run = start()
    opened = filled_in(operator.get(f"/runs/{run.id}").content.decode())
    raising.set_budget(run.pk, Budget(model_calls=100), by=OLGA, justification="First.")
    mine = opened | {"budget.model_calls": "9", "justification": "A careful reason."}
    answer = operator.client.post(f"/runs/{run.id}/budgets", mine)
    html, page = answer.content.decode(), text_of(answer)
    assert answer.status_code == 409 and "was no cap, is 100 now" in page and "0 of 100" in page
    assert filled_in(html)["budget.model_calls"] == "9" and "A careful reason." in html
    assert "Model calls: was" in page and "budget.model" not in page, "no machine words"
    assert Head.objects.get(pk=run.pk).cap_model_calls == 100 and OverrideRecord.objects.count() == 1
    again = operator.client.post(f"/runs/{run.id}/budgets", filled_in(html) | {"justification": WHY})
    assert again.status_code == 302 and Head.objects.get(pk=run.pk).cap_model_calls == 9


# --- who may ----------------------------------------------------------------------------------------------------------


def test_nobody_else_is_offered_the_form_or_may_send_it(
    operator: Reader, finance: Reader, reader: Callable[..., Reader], settings: Any
) -> None:
    run = overdue_run()
    assert reader("integrator").get(f"/runs/{run.id}").status_code == 404, "whose it isn't, for them there is none"
    for somebody in (finance, reader("auditor")):
        assert "None of your roles may raise it." in somebody.read(f"/runs/{run.id}")
        assert "budget-form" not in somebody.get(f"/runs/{run.id}").content.decode()
        answer = somebody.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "9"}, justification=WHY)
        assert answer.status_code == 403
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"budget_queue": "finance_po"})
    assert "who may raise it Operator, Finance approver" in operator.read(f"/runs/{run.id}")
    assert "Raise it" in finance.read(f"/runs/{run.id}")
    answer = finance.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "9"}, justification=WHY)
    assert answer.status_code == 302 and OverrideRecord.objects.get().role == "approver_finance"


# --- lists ------------------------------------------------------------------------------------------------------------


# --- the start form ---------------------------------------------------------------------------------------------------


def opened(who: Reader) -> tuple[str, dict[str, str]]:
    page = who.client.get("/runs/new", {"agent": "buyer", "sample": "none"}, follow=True).content.decode()
    token = re.findall(r'name="token" value="([^"]+)"', page)[0]
    return page, filled_in(page) | {"agent": "buyer@1.0.0", "token": token, "item": "chairs"}


def test_a_run_is_started_with_the_budget_of_its_form(operator: Reader) -> None:
    page, form = opened(operator)
    assert "<details" in page and form["budget.usd"] == ""
    answer = operator.client.post("/runs/new", form | {"budget.tool_calls": "3", "budget.wall_seconds": "1.5"})
    assert answer.status_code == 302
    run = Run.objects.get()
    assert Head.objects.get(pk=run.pk).cap_tool_calls == 3
    assert run.time_up_at is not None
    assert abs(run.time_up_at - run.created_at - timedelta(minutes=90)) < timedelta(seconds=5)
    again = operator.client.post("/runs/new", form | {"budget.tool_calls": "3", "budget.wall_seconds": "1.5"})
    assert again.status_code == 302 and Run.objects.count() == 1
    other = operator.client.post("/runs/new", form | {"budget.tool_calls": "4"})
    assert other.status_code == 409 and Run.objects.count() == 1
