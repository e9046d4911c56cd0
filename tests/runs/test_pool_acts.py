"""Pools: made, changed, refused; the calendar that they go by; and what verification finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ledger.errors import Forbidden, InvalidInput, JustificationRequired
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from runs.models import Pool, PoolMeter, PoolNotice
from runs.services import lifecycle
from runs.services.bodies import PoolBody, PoolChangeBody
from runs.services.pools import acts
from tests.runs.sharing import WHY, counted, forgotten, is_sound, let_in, meter, pool, raised
from tests.runs.stage import Stage, problems
from tests.runs.stories import as_superuser
from tests.runs.test_budgets import ordering
from tests.runs.test_pools import queue, start, states
from tests.world import OLGA, SHOP, Toolbox

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stage")]


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
    whole = {
        "name": "x",
        "scope": "all",
        "resource": "tool_calls",
        "limit": 1,
        "period": "day",
        "justification": WHY,
    }
    with pytest.raises((InvalidInput, ValidationError)) as refused:
        acts.create(PoolBody.model_validate(whole | given), by=OLGA)
    assert field in str(getattr(refused.value, "extra", refused.value))
    assert not Pool.objects.exists() and not PoolMeter.objects.exists()


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
        acts.create(PoolBody(**_body()), by=SHOP)
    with pytest.raises(JustificationRequired):
        acts.create(PoolBody(**_body(justification=" ")), by=OLGA)
    is_sound()


def _body(**more: Any) -> dict[str, Any]:
    return {"name": "x", "scope": "all", "resource": "usd", "limit": 1, "period": "day", "justification": WHY} | more


def test_a_limit_that_is_lowered_to_what_is_used_is_told_as_well(stage: Stage, tools: Toolbox) -> None:
    shared = pool(limit=100)
    run = start(ordering(tools, "order"))
    assert stage.drive() == "completed" and counted(shared) == (1, 0) and not PoolNotice.objects.exists()
    raised(shared, 2)
    assert not PoolNotice.objects.exists() and meter(shared).warned_at is None, "half is left"
    for limit in (1, 100, 1):
        raised(shared, limit)
    assert list(PoolNotice.objects.values_list("kind", "used", "most")) == [("warning", 1, 1)]
    assert meter(shared).warned_at is not None
    is_sound(run)


def test_who_decided_on_another_limit_is_told_so() -> None:
    shared = pool(limit=1)
    raised(shared, 5)
    with pytest.raises(acts.PoolMoved):
        acts.change(shared.pk, PoolChangeBody(limit=2, if_limit=1, justification=WHY), by=OLGA)
    assert meter(shared).most == 5


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


@pytest.mark.parametrize(
    ("zone", "at", "hours"),
    [
        ("Europe/Berlin", "2026-03-29T12:00", 23),
        ("Europe/Berlin", "2026-10-25T12:00", 25),
        ("America/Havana", "2026-11-01T12:00", 24),
        ("America/Havana", "2026-11-01T04:30", 25),
    ],
    ids=str,
)
def test_a_day_of_the_clocks_is_as_long_as_it_is(zone: str, at: str, hours: int) -> None:
    starts_at, ends_at = period_of("day", zone, datetime.fromisoformat(f"{at}+00:00"))
    assert ends_at - starts_at == timedelta(hours=hours)


def period_of(period: str, zone: str, at: datetime) -> tuple[datetime, datetime]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM runs_pool_period(%s, %s, %s)", [period, zone, at])
        starts_at, ends_at = cursor.fetchone()
    return starts_at, ends_at


# --- what verification says ------------------------------------------------------------------------------------------


def test_whoever_changes_a_pool_past_the_record_is_found(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.verification.pools.LATE", timedelta())
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
            as_superuser(forged)
            assert [*problems(run), *(found for each in verify_registers() for found in each.problems)], forged
            transaction.set_rollback(True)
    is_sound(run)
    assert counted(shared) == (2, 0)


@pytest.mark.parametrize(("id", "n"), [(-1, None), (-1, 0), (4711, None)])
def test_a_limit_is_not_what_an_act_without_a_place_says(id: int, n: int | None) -> None:
    """Written past the list, so that nothing that its functions number comes after it."""
    shared = pool(limit=10)
    columns = "action, subject, queue, by, role, auth, address, justification, before, at"
    as_superuser("UPDATE runs_poolmeter SET most = 11")
    as_superuser(
        f"INSERT INTO ledger_actrecord (id, n, {columns}, after) SELECT %s, %s, {columns}, "
        "jsonb_set(after, '{most}', '11') FROM ledger_actrecord WHERE subject = %s",
        id,
        n,
        f"pool {shared.pk}",
    )
    found = {each.name: each.problems for each in verify_registers()}
    assert any(problem.startswith(f"act record {id}") for problem in found["acts"])
    assert [problem.partition("): ")[2] for problem in found["pools"]] == [
        "what it is and how much it gives is not what whoever set it last put on record"
    ]


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE runs_wait SET detail = detail || \'{"wanted": "x"}\' WHERE run_id = %s',
        "UPDATE runs_wait SET detail = detail - 'wanted' WHERE run_id = %s",
        "DELETE FROM ledger_head WHERE run_id = %s",
        "UPDATE runs_run SET state = 'failed' WHERE id = %s",
    ],
    ids=range(4),
)
def test_one_damaged_run_keeps_no_other_waiting(stage: Stage, tools: Toolbox, damage: str) -> None:
    shared = pool(limit=0)
    damaged, sound = queue(stage, tools, 2)
    as_superuser(damage, damaged.id)
    raised(shared, 2)
    let_in()
    forgotten(shared)
    let_in()
    assert states([sound]) == ["running"]


# --- from a shell -----------------------------------------------------------------------------------------------------


def command(*given: str) -> str:
    said = StringIO()
    call_command("pools", *given, stdout=said)
    return said.getvalue()


def test_a_shell_on_the_server_makes_raises_lists_and_switches_off_on_record() -> None:
    why = ("--justification", "from the shell")
    made = command("make", "Day", "--resource", "usd", "--limit", "5.50", "--period", "day", *why)
    number = made.partition("\t")[0]
    assert "0.00 used" in made and "of 5.50" in made and command("list") == made
    assert "of 7.00" in command("set", number, "--limit", "7", *why)
    assert "\toff" in command("off", number, *why) and command("list") == ""
    records = ActRecord.objects.filter(subject=f"pool {number}").order_by("n")
    assert [(each.action, each.auth) for each in records] == [
        ("pool", "shell"),
        ("pool_change", "shell"),
        ("pool_off", "shell"),
    ]
    is_sound()


@pytest.mark.parametrize(
    "given",
    [
        ("make", "x", "--resource", "usd", "--limit", "-1", "--period", "day"),
        ("set", "404", "--limit", "1"),
        ("make", "x", "--resource", "usd", "--limit", "1", "--period", "day", "--zone", "Mars"),
        ("off", "404"),
    ],
    ids=str,
)
def test_what_can_t_be_is_refused_in_words(given: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        command(*given, "--justification", "from the shell")
    assert not Pool.objects.exists()
