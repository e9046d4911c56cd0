"""Somebody who was handed, or asked about, more than a hundred cases: what still waits for them is shown and done,
however much newer is over, and whatever was written past us at some of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.consulting.delegations import delegate
from approvals.consulting.inquiries import answer, ask
from approvals.models import Approval, Decision, Delegation
from approvals.talk.shown import open_for
from durableagents import Context, End
from durableagents.identity.auth import issue_key
from ledger.actors import Actor
from runs.engine.agents import Agent
from tests.api.conftest import Api
from tests.approvals.setup import WHY, say, somebody
from tests.approvals.test_damaged import client_of
from tests.approvals.test_talk_attacked import forged_delegation, forged_inquiry
from tests.runs.stage import Stage
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
WHAT = "Is this the price that you agreed with them?"
MOST = 100


def paying_often(tools: Toolbox, times: int) -> Agent:
    """An agent that asks finance about so many payments at the same time."""

    async def node(state: Notes, ctx: Context) -> End:
        calls = (ctx.call(tools.pay, Item(name=f"p{n}", amount=5000)) for n in range(times))
        return End(len(await ctx.gather(*calls)))

    return agent_of(node, tools=[tools.pay])


def many(stage: Stage, tools: Toolbox, times: int = MOST + 1) -> list[Approval]:
    """So many open questions to finance, the oldest first."""
    stage.start(paying_often(tools, times))
    assert stage.drive() == "parked"
    return list(Approval.objects.filter(state="open").order_by("opened_at", "id"))


@pytest.fixture
def ira() -> Actor:
    """An integrator, whose run it isn't."""
    return somebody("ira", "integrator")


def sees(by: Actor, case: Approval, listed: int = 1) -> None:
    """The case is one of so many in their inbox, its page opens, and their sockets hear of it and of no other."""
    client = client_of(by)
    inbox = client.get("/inbox").content.decode()
    assert f"/inbox/{case.pk}" in inbox
    assert f">{listed}</" in inbox
    assert client.get(f"/inbox/{case.pk}").status_code == 200
    assert set(open_for(by.person or 0)) == {str(case.run_id)} and len(open_for(by.person or 0)[str(case.run_id)]) == 1


def api_of(by: Actor) -> Any:
    return Api(issue_key(User.objects.get(pk=by.person), "test"))


def test_what_was_handed_over_first_is_decided_though_a_hundred_newer_are(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    cases = many(stage, tools)
    for case in cases:
        delegate(case.id, to="ira", justification=WHY, by=fiona)
    oldest = cases[0]
    for case in cases[1:]:
        say(case, fiona)
    sees(ira, oldest)
    body = {"verdict": "approve", "plan_hash": oldest.plan_hash, "justification": "as quoted"}
    assert api_of(ira).post(f"approvals/{oldest.id}/decision", body).status_code == 200
    assert Decision.objects.get(approval=oldest).by == "key:ira"
    assert api_of(ira).get(f"approvals/{cases[-1].id}").status_code == 200, "of what is over the newest are shown"


def test_what_was_asked_first_is_answered_though_a_hundred_newer_are(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    cases = many(stage, tools)
    for case in cases:
        row = ask(case.id, to="ira", question=WHAT, by=fiona)
        if case != cases[0]:
            answer(case.id, row.n, answer="Yes, of course.", by=ira)
    sees(ira, cases[0], listed=MOST + 1)
    told = api_of(ira).post(f"approvals/{cases[0].id}/inquiries/0/answer", {"answer": "Yes, it is."})
    assert told.status_code == 200 and told.json()["outcome"] == "answered"


def test_what_was_written_past_us_at_another_case_keeps_nothing_out_of_sight(
    stage: Stage, tools: Toolbox, fiona: Actor, ira: Actor
) -> None:
    about, mine, other = many(stage, tools, 3)
    ask(about.id, to="ira", question=WHAT, by=fiona)
    row = delegate(mine.id, to="ira", justification=WHY, by=fiona)
    for n in range(MOST + 1):
        forged_inquiry(other, ira.person, n=n)
        forged_inquiry(about, ira.person, n=n + 1)
        forged_inquiry(about, ira.person, n=-n - 1)
    _as_many_principals(other, row, MOST + 1)
    client = client_of(ira)
    inbox = client.get("/inbox").content.decode()
    assert f"/inbox/{about.pk}" in inbox and f"/inbox/{mine.pk}" in inbox and f"/inbox/{other.pk}" not in inbox
    assert client.get(f"/inbox/{about.pk}").status_code == 200 and client.get(f"/inbox/{other.pk}").status_code == 404
    say(mine, ira)
    assert Decision.objects.get().approval_id == mine.pk


def _as_many_principals(case: Approval, like: Delegation, times: int) -> None:
    """Forged ones at one question, each as if another person of finance had handed it over."""
    for n in range(times):
        whom = somebody(f"f{n}", "approver_finance")
        forged_delegation(case, like.deputy, n=n)
        Delegation.objects.filter(approval=case, n=n).update(principal=whom.person)
