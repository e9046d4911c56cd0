"""Requests for the same call with the same arguments are pointed out to the people who decide."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import Approval
from approvals.repeats import repeats_of
from durableagents import Context, End
from ledger.web.seeing.viewers import NOTHING, looking_as
from tests.integration.approvals.setup import say, somebody
from tests.integration.console.conftest import text_of
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def test_identical_requests_are_pointed_out_in_the_list_and_on_the_case(
    stage: Stage, tools: Toolbox, django_assert_num_queries: Callable[[int], AbstractContextManager[Any]]
) -> None:
    assert tools.pay.gate is not None
    pay, amounts = replace(tools.pay, gate=replace(tools.pay.gate, same=["name"])), iter((5000, 5000, 5000, 6000))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=next(amounts)))).ref)

    agent = agent_of(node, tools=[pay])
    for _ in range(4):
        stage.start(agent)
        assert stage.drive() == "parked"
    ann = somebody("ann", "approver_finance")
    *same, other = Approval.objects.order_by("opened_at")
    decided, first, second = same
    say(decided, ann)
    held = frozenset({"approver_finance"})
    with django_assert_num_queries(1):
        found = repeats_of([first, second, other], held)
    assert {of: [(one.id, one.state) for one in all_] for of, all_ in found.items()} == {
        first.id: [(second.id, "open"), (decided.id, "approved")],
        second.id: [(first.id, "open"), (decided.id, "approved")],
    }
    with looking_as(NOTHING):
        assert repeats_of([first], frozenset()) == {}
    client = Client()
    client.force_login(User.objects.get(pk=ann.person))
    assert text_of(client.get("/inbox")).count("2 more with the same arguments") == 2
    page = client.get(f"/inbox/{first.id}")
    assert "2 more requests with the same arguments" in text_of(page)
    assert re.search(rf'/inbox/{decided.id}">\s*Approved</a>', page.content.decode())
    assert 'id="repeats"' not in client.get(f"/inbox/{other.id}").content.decode()
