"""Pools: creation, changes, refusals, their calendar, and verification."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from durableagents.contrib.limits import shared_budgets as acts
from durableagents.contrib.limits.models import BudgetMeter, SharedBudget
from durableagents.contrib.limits.shared_budgets import SharedBudgetBody
from ledger.errors import Forbidden, InvalidInput, JustificationRequired
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from runs.services import lifecycle
from tests.contrib.limits.budgets import WHY, counted, is_sound, pool, raised
from tests.integration.runs.stage import Stage, problems
from tests.integration.runs.test_budgets import ordering
from tests.tampering import tamper
from tests.world import OLGA, SHOP, Toolbox

pytestmark = pytest.mark.usefixtures("stage")


# --- made, changed, refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("limit", {"limit": -1}),
        ("limit", {"limit": "1.5"}),
        ("limit", {"limit": "NaN"}),
        ("resource", {"resource": "eur"}),
        ("period", {"period": "year"}),
        ("zone", {"zone": "Mars/Phobos"}),
        ("zone", {"zone": ""}),
        ("scope", {"scope": "moon"}),
        ("whose", {"scope": "tag"}),
        ("whose", {"scope": "all", "whose": "x"}),
        ("whose", {"scope": "agent", "whose": "nobody"}),
        ("whose", {"scope": "person", "whose": "nobody"}),
        ("whose", {"scope": "provider", "whose": "openai:gpt-5", "resource": "usd"}),
        ("resource", {"scope": "provider", "whose": "openai"}),
        ("name", {"name": ""}),
        ("name", {"name": " x"}),
        ("limit", {"resource": "usd", "limit": "0.0000001"}),
        ("limit", {"resource": "usd", "limit": 10**10}),
    ],
    ids=str,
)
def test_no_such_pool_can_be_and_nothing_is_half_done(field: str, given: dict[str, Any]) -> None:
    whole = {"name": "x", "scope": "all", "resource": "tool_calls", "limit": 1, "period": "day", "justification": WHY}
    with pytest.raises((InvalidInput, ValidationError)) as refused:
        acts.create(SharedBudgetBody.model_validate(whole | given), by=OLGA)
    assert field in str(getattr(refused.value, "extra", refused.value))
    assert not SharedBudget.objects.exists() and not BudgetMeter.objects.exists()


def test_there_is_one_of_a_name_and_one_that_counts_the_same() -> None:
    first = pool(limit=1, name="one")
    for again, field in (({"name": "one", "resource": "tokens_in"}, "name"), ({"name": "two"}, "scope")):
        with pytest.raises(InvalidInput) as refused:
            pool(**{"limit": 1, **again})
        assert refused.value.extra["errors"][0]["field"] == field
    acts.switch_off(first.pk, by=OLGA, justification="over")
    pool(limit=1, name="one")


def test_every_act_is_on_record_with_what_was_before_and_who_may_not_is_refused() -> None:
    shared = pool(limit=1)
    raised(shared, 5)
    acts.switch_off(shared.pk, by=OLGA, justification="over")
    made, changed, off = ActRecord.objects.filter(subject=f"pool {shared.pk}").order_by("n")
    assert [made.action, changed.action, off.action] == ["pool", "pool_change", "pool_off"]
    assert made.before == {} and (changed.before["most"], changed.after["most"]) == (1, 5)
    assert off.after["off_at"] and off.by == OLGA.ref and changed.justification == WHY
    with pytest.raises(Forbidden):
        acts.create(SharedBudgetBody(**_body()), by=SHOP)
    with pytest.raises(JustificationRequired, match="Creating a shared budget needs a reason"):
        acts.create(SharedBudgetBody(**_body(justification=" ")), by=OLGA)
    is_sound()


def _body(**more: Any) -> dict[str, Any]:
    return {"name": "x", "scope": "all", "resource": "usd", "limit": 1, "period": "day", "justification": WHY} | more


# --- the calendar -----------------------------------------------------------------------------------------------------

ZONES = ("UTC", "Europe/Berlin", "America/Havana", "Asia/Beirut", "Pacific/Apia", "America/New_York", "Asia/Kathmandu")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    period=st.sampled_from(["day", "week", "month"]),
    zone=st.sampled_from(ZONES),
    at=st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
)
def test_periods_follow_one_another_and_hold_their_moments(period: str, zone: str, at: datetime) -> None:
    starts_at, ends_at = period_of(period, zone, at)
    assert starts_at <= at < ends_at
    assert period_of(period, zone, starts_at) == (starts_at, ends_at)
    assert period_of(period, zone, ends_at)[0] == ends_at
    assert period_of(period, zone, ends_at - timedelta(microseconds=1)) == (starts_at, ends_at)
    length = (ends_at - starts_at) / timedelta(hours=1)
    assert {"day": 23, "week": 167, "month": 671}[period] <= length <= {"day": 25, "week": 169, "month": 745}[period]


def period_of(period: str, zone: str, at: datetime) -> tuple[datetime, datetime]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM runs_pool_period(%s, %s, %s)", [period, zone, at])
        starts_at, ends_at = cursor.fetchone()
    return starts_at, ends_at


# --- verification ----------------------------------------------------------------------------------------------------


def test_changed_pool_row_is_found(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durableagents.contrib.limits.budget_verify.LATE", timedelta())
    shared = pool(limit=10)
    run = lifecycle.start(ordering(tools, "order", "order").graph_id, {"text": "x"}, by=SHOP)
    assert stage.drive() == "completed"
    is_sound(run)
    for forged in (
        "UPDATE runs_poolmeter SET most = 11",
        "UPDATE runs_poolmeter SET used = 1",
        "UPDATE runs_poolmeter SET reserved = 1",
        "UPDATE runs_poolmeter SET is_on = false",
        "UPDATE runs_poolmeter SET resource = 'model_calls'",
        "UPDATE runs_pool SET name = 'another'",
        "UPDATE runs_pool SET scope = 'tag', \"of\" = 'x'",
        "UPDATE runs_pool SET off_at = made_at",
        "DELETE FROM runs_poolcharge",
        "UPDATE runs_poolcharge SET n = 7",
        "UPDATE runs_poolcharge SET used = 2",
        "DELETE FROM runs_poolcharge WHERE slot = '0.1/1'; UPDATE runs_poolmeter SET used = 1",
        "UPDATE runs_poolcharge SET starts_at = starts_at - interval '1 day'",
        "DELETE FROM runs_poolmeter",
    ):
        with transaction.atomic():
            tamper(forged)
            assert [*problems(run), *(found for each in verify_registers() for found in each.problems)], forged
            transaction.set_rollback(True)
    is_sound(run)
    assert counted(shared) == (2, 0)
