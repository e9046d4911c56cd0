"""A run that waits for many people or words at once: `why` looks at no more of it than it tells of, and says where the
rest is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval
from durableagents import Context, End
from durableagents.identity.auth import issue_key
from runs.models import Run, Wait
from runs.queries.why.acts import MOST_OFFERED
from runs.queries.why.answer import why
from runs.queries.why.seen import look_at
from tests.api.conftest import Api, person
from tests.runs.stage import Stage
from tests.runs.test_why import OPERATOR
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def asking(stage: Stage, tools: Toolbox, gates: int = 0, questions: int = 0, signals: int = 0) -> Run:
    """A run that waits for so many of each at the same time."""

    async def node(state: Notes, ctx: Context) -> End:
        calls = (ctx.call(tools.pay, Item(name=f"p{n}", amount=5000)) for n in range(gates))
        asks = (ctx.ask("legal", title=f"How many of {n}?", schema=Item) for n in range(questions))
        words = (ctx.signal(f"s{n}") for n in range(signals))
        return End(len(await ctx.gather(*calls, *asks, *words)))

    run = stage.start(agent_of(node, tools=[tools.pay], name=f"many{gates}-{questions}-{signals}"))
    assert stage.drive() == "parked"
    return run


def test_fifty_gates_cost_as_many_statements_as_twenty_five_and_the_rest_is_told(stage: Stage, tools: Toolbox) -> None:
    cost = {}
    for gates in (25, 50):
        run = asking(stage, tools, gates)
        api = Api(issue_key(person(f"fiona{gates}", "approver_finance"), "test"))
        with CaptureQueriesContext(connection) as asked:
            answer = api.get(f"runs/{run.pk}/why").json()
        cost[gates] = len(asked)
        offers = [each for each in answer["acts"] if each["act"] == "decide"]
        assert len(offers) == MOST_OFFERED and all(each["allowed"] for each in offers)
        said = f"{gates - MOST_OFFERED} more questions to decide are not among its acts: GET "
        path = answer["also"].partition(said)[2].split()[0]
        assert path == f"/api/v1/approvals?state=open&run_id={run.pk}"
        listed = api.get(f"{path}&limit=100").json()["results"]
        assert len(listed) == gates and {each["subject"] for each in offers} < {each["id"] for each in listed}
    assert cost[25] == cost[50]


def test_what_is_due_first_is_offered(stage: Stage, tools: Toolbox) -> None:
    run = asking(stage, tools, MOST_OFFERED + 1)
    last = Approval.objects.order_by("-opened_at", "-id").first()
    assert last is not None
    soon = last.deadline - timedelta(hours=1)
    Wait.objects.filter(pk=last.wait_id).update(deadline=soon)
    Approval.objects.filter(pk=last.pk).update(deadline=soon)
    offers = [each for each in why(look_at(run.pk), OPERATOR).acts if each.act == "decide"]
    assert offers[0].subject == str(last.pk) and len(offers) == MOST_OFFERED


def test_as_many_as_are_offered_are_not_said_to_be_more(stage: Stage, tools: Toolbox) -> None:
    found = why(look_at(asking(stage, tools, gates=MOST_OFFERED).pk), OPERATOR)
    assert sum(each.act == "decide" for each in found.acts) == MOST_OFFERED and "more" not in found.also


def test_of_many_questions_and_signals_those_that_are_due_first_are_offered(stage: Stage, tools: Toolbox) -> None:
    cost = {}
    for each in (25, 50):
        run = asking(stage, tools, questions=each, signals=each)
        with CaptureQueriesContext(connection) as asked:
            found = why(look_at(run.pk), OPERATOR)
        cost[each] = len(asked)
        told = [one for one in found.acts if one.act in ("answer", "signal")]
        assert len(told) == MOST_OFFERED and all(one.is_allowed for one in told)
        said = f"{2 * each - MOST_OFFERED} more answers, signals or messages that it waits for are not among its acts"
        assert f"{said}: GET /api/v1/runs/{run.pk} has them all (waiting_for)." in found.also
        api = Api(issue_key(person(f"olga{each}", "operator"), "test"))
        assert len(api.get(f"runs/{run.pk}").json()["waiting_for"]) == 2 * each
    assert cost[25] == cost[50]
