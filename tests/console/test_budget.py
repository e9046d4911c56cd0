"""Budgets on the console: given in the start form, shown on the page and in lists, raised by whoever may."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ledger.models import Event, Head, OverrideRecord
from runs.console import budgets
from runs.console.tables.waits import amounts_of
from runs.engine.budget.limits import Budget
from runs.models import BudgetDefault, Run, Wait
from runs.services import lifecycle
from runs.services.budgets import raising
from tests.console.conftest import SHOP, Reader, filled_in, start, text_of
from tests.console.stage import settled, working
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


def waiting(run: Run, **detail: Any) -> Wait:
    """The wait of a run for its budget, with something else in its row."""
    wait = Wait.objects.get(run=run, kind="budget", resolved_at__isnull=True)
    Wait.objects.filter(pk=wait.pk).update(detail=wait.detail | detail)
    return wait


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


@pytest.mark.django_db(transaction=True)
def test_a_run_that_ends_while_somebody_writes_is_raised_by_nobody(operator: Reader) -> None:
    run = stopped_run()
    form = filled_in(operator.get(f"/runs/{run.id}").content.decode())
    operator.post(f"/runs/{run.id}/cancellations", justification=WHY)
    answer = operator.post(f"/runs/{run.id}/budgets", **form, justification="A careful reason.")
    assert answer.status_code == 409 and "A careful reason." in text_of(answer)
    assert [record.action for record in OverrideRecord.objects.all()] == ["cancel"]


@pytest.mark.parametrize(
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


@pytest.mark.django_db(transaction=True)
def test_a_raise_that_is_not_enough_says_what_would_be(operator: Reader) -> None:
    run = stopped_run(tool_calls=0, steps=0)
    html = operator.get(f"/runs/{run.id}").content.decode()
    assert (filled_in(html)["budget.tool_calls"], filled_in(html)["budget.steps"]) == ("2", "2")
    answer = operator.client.post(
        f"/runs/{run.id}/budgets", {"budget.tool_calls": "5", "justification": WHY}, follow=True
    )
    page = text_of(answer)
    assert "on the record, but isn't enough. It needs at least 1 steps." in page and "Needs more budget" in page
    assert filled_in(answer.content.decode())["budget.tool_calls"] == "" and "at least 1" in page
    assert Head.objects.get(pk=run.pk).cap_tool_calls == 5 and Run.objects.get(pk=run.pk).state == "paused"
    form = filled_in(answer.content.decode()) | {"justification": WHY}
    assert "It is on the record." in text_of(operator.client.post(f"/runs/{run.id}/budgets", form, follow=True))
    assert Run.objects.get(pk=run.pk).state == "running"


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


@pytest.mark.parametrize("seen", ["{", '{"gold": 1}', "[]", '"x"', "<img>", '{"steps": -1}', "[" * 50_000])
def test_a_form_whose_caps_can_not_be_read_sets_nothing(operator: Reader, seen: str) -> None:
    run = start()
    form = {"budget.steps": "5", "justification": WHY, "if_caps": seen}
    answer = operator.client.post(f"/runs/{run.id}/budgets", form)
    assert answer.status_code == 422 and b"<img>" not in answer.content
    assert Head.objects.get(pk=run.pk).cap_steps is None
    assert filled_in(answer.content.decode())["budget.steps"] == "5"


def test_who_pauses_it_besides_is_named_and_it_waits_to_be_resumed(operator: Reader) -> None:
    run = overdue_run()
    operator.post(f"/runs/{run.id}/pauses", justification=WHY)
    page, html = operator.read(f"/runs/{run.id}"), operator.get(f"/runs/{run.id}").content.decode()
    assert "paused besides by user:operator: once it is raised, it waits to be resumed" in page
    assert re.findall(r'id="act-(\w+)"', html) == ["cancel"]
    operator.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "9"}, justification=WHY)
    assert Run.objects.get(pk=run.pk).state == "paused"
    operator.post(f"/runs/{run.id}/resumptions", justification=WHY)
    assert Run.objects.get(pk=run.pk).state == "pending"


def test_what_a_raise_changed_stands_with_its_record(operator: Reader) -> None:
    run = start()
    operator.post(f"/runs/{run.id}/budgets", **{"budget.steps": "1,000"}, justification=WHY)
    operator.post(f"/runs/{run.id}/budgets", **{"budget.steps": "none", "budget.tool_calls": "7"}, justification=WHY)
    for page in (operator.read(f"/runs/{run.id}", tab="decisions"), operator.read("/audit", action="budget")):
        assert "steps: no cap → 1,000" in page and "steps: 1,000 → no cap" in page and "tool calls: no cap → 7" in page


def test_money_is_told_to_the_same_place() -> None:
    assert amounts_of("usd", 70, 6_900, 0, None) == ["$0.00007", "$0.00690", "$0.00000", "–"]
    assert amounts_of("usd", 5_000_000, 10_000) == ["$5.00", "$0.01"]
    assert amounts_of("steps", 1_000, None) == ["1,000", "–"]


def test_without_a_reason_or_with_a_stray_field_nothing_is_set(operator: Reader) -> None:
    run = start()
    for more in ({}, {"justification": WHY, "budget.gold": "1"}, {"justification": WHY, "wait": "x"}):
        answer = operator.post(f"/runs/{run.id}/budgets", **{"budget.steps": "5"}, **more)
        assert answer.status_code == 422
    assert Head.objects.get(pk=run.pk).cap_steps is None


def test_a_cap_is_set_and_lifted_also_where_the_run_asks_for_nothing(operator: Reader, finance: Reader) -> None:
    run = start()
    assert "Set what it may use" in operator.read(f"/runs/{run.id}")
    assert "Budget" not in finance.read(f"/runs/{run.id}"), "nothing to say, and nothing to do"
    operator.post(f"/runs/{run.id}/budgets", **{"budget.steps": "1,000", "budget.usd": "$5"}, justification=WHY)
    page = finance.read(f"/runs/{run.id}")
    assert "0 of 1,000" in page and "$0.00 of $5.00" in page and "Set what it may use" not in page
    operator.post(f"/runs/{run.id}/budgets", **{"budget.usd": "None"}, justification=WHY)
    head = Head.objects.get(pk=run.pk)
    assert (head.cap_steps, head.cap_usd_micro) == (1000, None)


def test_time_that_is_up_is_asked_for_in_hours(operator: Reader) -> None:
    run = overdue_run()
    page = operator.get(f"/runs/{run.id}")
    assert "Needs more time" in text_of(page) and "given 1 h 00 m" in text_of(page)
    assert filled_in(page.content.decode())["budget.wall_seconds"] == "4"
    operator.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "3.5"}, justification=WHY)
    again = Run.objects.get(pk=run.pk)
    assert again.time_up_at == run.created_at + timedelta(hours=3.5) and again.state == "pending"
    assert "Its time is up in 1 h" in operator.read(f"/runs/{run.id}")


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


def test_it_stands_where_operators_look_and_goes_when_it_is_raised(operator: Reader, finance: Reader) -> None:
    run = overdue_run()
    assert "Raise a budget" in operator.read("/") and "needs budget" in operator.read("/runs")
    page = operator.read("/reconcile")
    assert "Needs more time" in page and "time : 2 h 00 m of 1 h 00 m used" in page and "Raise" in page
    assert 'compact" href="' in finance.get("/reconcile").content.decode() and "Look" in finance.read("/reconcile")
    operator.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "9"}, justification=WHY)
    assert "Every outcome is known" in operator.read("/reconcile") and "Raise a budget" not in operator.read("/")


def test_what_a_run_cost_stands_in_its_row_and_a_dash_where_nobody_knows(operator: Reader) -> None:
    run = start()
    assert "$" not in operator.read("/runs") and "–" not in operator.read("/runs")
    Head.objects.filter(pk=run.pk).update(usd_micro=120_000, model_calls=1)
    assert "· $0.12" in operator.read("/runs") and "$0.12" in operator.read(f"/runs/{run.id}")
    Head.objects.filter(pk=run.pk).update(unpriced_calls=1)
    assert "· –" in operator.read("/runs") and "$0.12" not in operator.read("/runs")
    assert "1 request went to a model without a price" in operator.read(f"/runs/{run.id}")


@pytest.mark.parametrize(
    "detail", [{"resource": "<img>", "most": "<img>", "used": [], "wanted": {}}, {"title": "<img>", "queue": "<img>"}]
)
def test_a_damaged_row_is_told_without_markup_and_can_still_be_raised(operator: Reader, detail: dict[str, Any]) -> None:
    run = overdue_run()
    waiting(run, **detail)
    for path in ("/", "/runs", "/reconcile", f"/runs/{run.id}"):
        answer = operator.get(path)
        assert answer.status_code == 200 and b"<img" not in answer.content, path
    operator.post(f"/runs/{run.id}/budgets", **{"budget.wall_seconds": "9"}, justification=WHY)
    assert Run.objects.get(pk=run.pk).state == "pending"


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


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("usd", "-1", "greater than or equal to 0"),
        ("usd", "none", "decimal"),
        ("tool_calls", "many", "integer"),
        ("wall_seconds", "soon", "no number of hours"),
    ],
)
def test_a_wrong_cap_starts_nothing_and_is_marked(operator: Reader, name: str, text: str, says: str) -> None:
    _, form = opened(operator)
    answer = operator.client.post("/runs/new", form | {f"budget.{name}": text})
    html = answer.content.decode()
    assert answer.status_code == 422 and not Run.objects.exists()
    assert says in re.findall(rf'id="f-budget-{name}_error">\s*(.*?)</span>', html, re.DOTALL)[0]
    assert f'href="#f-budget-{name}"' in html and filled_in(html)[f"budget.{name}"] == text
    assert re.search(r'<details class="more" id="caps" open>', html), "what is wrong is in sight"


@pytest.mark.parametrize(
    ("typed", "meant"), [("1,000", 1000), ("12,345,678", 12345678), ("5,00", "5,00"), ("1,0", "1,0")]
)
def test_a_comma_groups_thousands_and_is_no_decimal(typed: str, meant: Any) -> None:
    assert budgets.at_start({"budget.model_calls": typed}) == {"model_calls": meant}


def test_the_start_form_says_which_defaults_hold_and_what_keeps_it_from_starting(operator: Reader) -> None:
    page, _ = opened(operator)
    assert "Defaults here: time 90 d" in page
    row = BudgetDefault.objects.create(agent="buyer", budget={"usd": "5.5", "model_calls": 200, "wall_seconds": 3600})
    page, _ = opened(operator)
    assert "Defaults here: dollars $5.50 · model calls 200 · time 1 h 00 m" in page
    BudgetDefault.objects.filter(pk=row.pk).update(budget={"gold": 1})
    page, _ = opened(operator)
    assert "nothing is started under it" in page
    assert operator.get("/agents/buyer@1.0.0").status_code == 200
    assert "nothing is started under it" in operator.read("/agents/buyer@1.0.0")
