"""A grant used by a later node: its approver is read from the journal, because people may patch the state."""

from __future__ import annotations

import pytest

from approvals.models import Queue
from approvals.services import AlreadyVoted
from durableagents import Context, End
from runs.services import lifecycle
from tests.contrib.policies.test_policies import put
from tests.integration.approvals.setup import boss, somebody
from tests.integration.approvals.test_brought import Deal, dealing, given, go, open_case, yes
from tests.integration.runs.stage import Stage, problems
from tests.integration.runs.test_injecting import handed
from tests.tampering import tamper
from tests.world import OLGA, Asked, Item, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def test_a_patch_makes_nobody_elses_yes_of_it(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent = dealing(tools, tools.order)
    put(boss(), queue="legal")
    run = given(stage, agent)
    lifecycle.pause(run.id, by=OLGA, justification="as it was said")
    handed(run, patch={"grant": {"queue": "legal"}})
    go(run)
    assert stage.drive() == "parked" and outside.requests == []
    assert open_case(run)[0].queue == "legal"
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed("order")) == 1 and problems(run) == []


@pytest.mark.parametrize("nodes", ["one", "two"])
def test_one_person_is_not_two_queues(stage: Stage, tools: Toolbox, outside: Outside, nodes: str) -> None:
    async def node(state: Deal, ctx: Context) -> End:
        body = Item(name="po", amount=5)
        grant = await ctx.approve("finance_po", title="May I?", tool=tools.order, body=body)
        return End((await ctx.call(tools.order, body, grant=grant)).ref)

    if nodes == "one":
        agent = agent_of(node, tools=tools.all(), input=Asked, state=Deal, initial=lambda asked: Deal())
    else:
        agent = dealing(tools, tools.order)
    admin = boss()
    put(admin, name="one", queue="finance_po")
    put(admin, name="two", queue="legal")
    run = stage.start(agent)
    roles = {queue.name: queue.role for queue in Queue.objects.filter(name__in=["finance_po", "legal"])}
    both = somebody("berta", *roles.values())
    assert stage.drive() == "parked"
    yes(open_case(run)[0], both)
    assert stage.drive() == "parked"
    if nodes == "two":
        go(run)
        assert stage.drive() == "parked"
    second, _ = open_case(run)
    assert second.queue == "legal"
    with pytest.raises(AlreadyVoted, match="Each person has one vote"):
        yes(second, both)
    yes(second, somebody("lena", roles["legal"]))
    assert stage.drive() == "completed" and len(outside.executed("order")) == 1 and problems(run) == []
    tamper("UPDATE runs_wait SET detail = detail - 'brought' WHERE run_id = %s", run.id)
    assert any("brought differs" in problem for problem in problems(run))
