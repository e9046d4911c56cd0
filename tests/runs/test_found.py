"""A run that stopped for an operator says in its answer what for, as its page does."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents import Context, End
from durableagents.identity.auth import issue_key
from runs.models import Wait
from runs.workers import timers
from tests.runs.stage import Stage
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(stage: Stage) -> Client:
    user = User.objects.create_user("found-operator", password="a long enough one")
    user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    return Client(headers={"Authorization": f"Bearer {issue_key(user, 'test')}"})


def test_of_two_calls_that_differ_the_api_tells_both(stage: Stage, reader: Client) -> None:
    tools, names = Toolbox(Outside()), iter(["first", "second"])

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name=next(names)))
        await ctx.sleep(3600)
        return End()

    run = stage.start(agent_of(node, tools=[tools.order]))
    assert stage.drive() == "parked"
    Wait.objects.filter(run=run).update(deadline="2001-01-01T00:00:00Z")
    timers.sweep()
    assert stage.drive() == "operator"
    for shown in (reader.get(f"/api/v1/runs/{run.id}").json(), reader.get("/api/v1/runs").json()["results"][0]):
        (waiting,) = [wait for wait in shown["waiting_for"] if wait["kind"] == "operator"]
        assert waiting["detail"]["reason"] == "non_determinism"
        found = waiting["detail"]["found"]
        assert found["recorded"]["call"] == found["now"]["call"] == "order"
        assert (found["recorded"]["arguments"]["name"], found["now"]["arguments"]["name"]) == ("first", "second")
