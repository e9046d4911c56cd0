"""One run's odd deadline makes no list unreadable: PostgreSQL's calendar is longer than Python's."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from durableagents import Context, End
from durableagents.identity.auth import issue_key
from runs.models import Wait
from runs.workers import timers
from tests.runs.stage import Stage, fresh
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(stage: Stage) -> Client:
    user = User.objects.create_user("calendar-operator", password="a long enough one")
    user.groups.set(Group.objects.filter(name__in=["operator", "approver_finance"]))
    client = Client(headers={"Authorization": f"Bearer {issue_key(user, 'test')}"})
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    "odd", ["9999-12-31 23:59:00-12", "20000-01-01 00:00:00+00", "infinity", "-infinity", "0044-03-15 12:00:00+00 BC"]
)
def test_a_deadline_beyond_pythons_calendar_leaves_every_list_readable(
    stage: Stage, operator: Client, odd: str
) -> None:
    tools = Toolbox(Outside())

    async def sleeping(state: Notes, ctx: Context) -> End:
        await ctx.sleep(3600)
        return End()

    async def paying(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.pay, Item(name="a", amount=5000))
        return End()

    asleep, gated = stage.start(agent_of(sleeping)), stage.start(agent_of(paying, tools=[tools.pay]))
    assert {stage.drive(), stage.drive()} == {"parked"}
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_wait SET deadline = %s::timestamptz", [odd])
        cursor.execute("UPDATE approvals_approval SET deadline = %s::timestamptz", [odd])
    for address in (
        "/api/v1/runs",
        f"/api/v1/runs/{asleep.id}",
        f"/api/v1/runs/{gated.id}",
        "/api/v1/approvals",
        "/runs",
        "/",
        f"/runs/{asleep.id}",
        "/inbox",
        "/audit",
    ):
        answer: Any = operator.get(address, follow=True)
        assert answer.status_code == 200, (address, answer.content[:300])
    assert {run["id"] for run in operator.get("/api/v1/runs").json()["results"]} == {str(asleep.id), str(gated.id)}
    assert {wait.deadline.year for wait in Wait.objects.all()} <= {1, 9999}
    timers.sweep()
    assert str(fresh(gated).state) in ("waiting_human", "pending", "running")
