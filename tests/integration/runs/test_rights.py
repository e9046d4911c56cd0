from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
import pytest
from django.db import ProgrammingError, connection

from approvals.inbox import inbox
from durableagents import Context, End
from ledger.web.tally import Tally
from runs.models import Run, Wait
from runs.queries import spending
from runs.services import callbacks, lifecycle, questions
from runs.services.authority import steering_authority
from tests.conftest import database_urls
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, calling, fresh, now, output, problems, waiting
from tests.integration.runs.stories import answered, cancelled, everything, failed, through
from tests.integration.runs.test_budgets import at_cap, raised
from tests.tampering import as_stored
from tests.world import LENA, OLGA, Item, Notes, Outside, Toolbox, agent_of


@pytest.fixture
def role(postgres: Mapping[str, str]) -> str:
    with psycopg.connect(database_urls(postgres)["runtime"]) as link:
        return str(link.info.user)


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f'SET ROLE "{role}"')
        try:
            yield
        finally:
            cursor.execute("RESET ROLE")


@pytest.mark.parametrize("story", [failed, cancelled, answered])
def test_acts_need_only_the_runtime_role(stage: Stage, tools: Toolbox, role: str, story: object) -> None:
    with acting_as(role):
        run = story(stage, tools)  # type: ignore[operator]
    assert problems(run) == []


def test_a_whole_life_needs_no_more_rights_than_the_runtime_role_has(stage: Stage, tools: Toolbox, role: str) -> None:
    with acting_as(role):
        run = through(stage, tools, everything(tools))
        lifecycle.cancel(run.id, by=OLGA, justification="seen enough")
    assert problems(run) == []


def test_a_budget_is_raised_with_the_runtime_roles_rights(stage: Stage, tools: Toolbox, role: str) -> None:
    with acting_as(role):
        run = at_cap(stage, tools, tool_calls=1)
        raised(run, tool_calls=1)
        raised(run, steps=1, wall_seconds=None)
        lifecycle.pause(run.id, by=OLGA, justification="look at it")
        raised(run, tool_calls=9, steps=9)
        lifecycle.resume(run.id, by=OLGA, justification="seen enough")
        assert stage.drive() == "completed"
    assert problems(run) == []


def test_smuggled_sql_asks_nobody_else_for_a_budget(stage: Stage, tools: Toolbox, role: str) -> None:
    run = at_cap(stage, tools, tool_calls=1)
    with acting_as(role):
        Wait.objects.filter(run=run).update(lacking={"queue": "legal", "resource": "<b>", "most": "x", "enough": [1]})
    exceeded = spending.exceeded(waiting(run))
    assert exceeded is not None and (exceeded.queue, exceeded.at_most, exceeded.enough) == ("", None, {})
    raised(run, tool_calls=9)
    assert stage.drive() == "completed"


def test_callback_wait_needs_the_runtime_role_only(stage: Stage, tools: Toolbox, outside: Outside, role: str) -> None:
    """Its address stays as given out, and only there."""

    run = stage.start(calling(tools, "ask", "form"))
    assert stage.drive() == "parked"
    with acting_as(role):
        Wait.objects.filter(run=run).update(deadline=now())
        assert stage.settle(run) == "failed"
        act("retry", run)
        assert [(wait.kind, wait.n) for wait in waiting(run) if wait.kind == "webhook"] == [("webhook", 1)]
        stage.settle(run)
        (url,) = outside.urls.values()
        token = url.rpartition("/")[2]
        callbacks.receive_callback(token, {"ref": "form"})
        assert callbacks.receive_callback(token, {"ref": "form"}) == {"status": "received"}
        assert stage.settle(run) == "completed"
    assert output(run) == "form" and problems(run) == []


@pytest.mark.parametrize("column", ["about", "agent", "version", "graph_id", "created_by", "creator"])
def test_smuggled_sql_changes_no_shown_state(stage: Stage, tools: Toolbox, role: str, column: str) -> None:
    run = failed(stage, tools)
    with acting_as(role), pytest.raises(ProgrammingError, match="permission denied"):
        Run.objects.filter(pk=run.id).update(**as_stored(Run, **{column: 7 if column == "creator" else "paid already"}))


def test_smuggled_sql_changes_no_question_and_no_addressee(stage: Stage, tools: Toolbox, role: str) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.approve("finance_po", title="Pay?")
        return End((await ctx.ask("finance_po", title="What?", schema=Item)).name)

    run = stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    for changed in ({"queue": "legal", "title": "Tea?"}, {}):
        with acting_as(role), pytest.raises(ProgrammingError, match="permission denied"):
            Wait.objects.filter(run=run).update(**as_stored(Wait, detail=changed))
    assert not steering_authority(fresh(run)).allowed([LENA.role], LENA.person)
    held = frozenset({LENA.role})
    assert [item.title for item in inbox(held, Tally(held)).items] == []
    stage.decide(run)
    stage.drive()
    (question,) = waiting(run)
    assert questions.roles_for(question)[0] == "approver_finance"
