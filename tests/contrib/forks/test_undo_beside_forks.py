from __future__ import annotations

import pytest

from durableagents import BusinessFailure, Context, End
from ledger.errors import IllegalTransition
from runs.models import Run
from runs.services import lifecycle
from tests.contrib.forks.test_forks import AGAIN, fork, say
from tests.integration.runs.families_undone import all_sound, answer, everything, family
from tests.integration.runs.stage import Stage, fresh
from tests.unit.engine.undoings import Reversible, names
from tests.world import OLGA, Notes, Outside, agent_of

WHY = "as it should be"


@pytest.fixture
def tools(outside: Outside) -> Reversible:
    return Reversible(outside)


@pytest.fixture
def below(stage: Stage, tools: Reversible, outside: Outside) -> tuple[Run, Run]:
    """Return a parent that was paused and forked, and its child, stopped in the middle of its undo."""
    run = stage.start(family(tools, "wait", fails=False))
    everything(stage)
    child = Run.objects.get(parent=run.pk)
    outside.trouble("unbook", BusinessFailure("not now"))
    lifecycle.cancel(child.pk, by=OLGA, justification=WHY, effects="undo")
    everything(stage)
    assert (fresh(child).state, fresh(child).node) == ("waiting_human", "_undo")
    lifecycle.pause(run.pk, by=OLGA, justification="look at it")
    made = fork(fresh(run), 1)
    everything(stage)
    say(made, AGAIN)
    everything(stage)
    assert fresh(child).state == "paused" and names(outside).count("post") == 2, "the fork has acted"
    return fresh(run), fresh(child)


@pytest.mark.parametrize("effects", ["undo", "leave"])
def test_undoing_child_ignores_a_fork(stage: Stage, below: tuple[Run, Run], outside: Outside, effects: str) -> None:
    run, child = below
    lifecycle.cancel(run.pk, by=OLGA, justification="no more", effects=effects)
    everything(stage)
    assert fresh(child).state == "waiting_human", "its parent's undo waits for it"
    answer(child, "retry")
    everything(stage)
    assert (fresh(child).state, fresh(run).state) == ("cancelled", "cancelled")
    assert (names(outside).count("unbook"), names(outside).count("unpost")) == (1, int(effects == "undo"))
    all_sound()


def test_a_person_lets_what_undoes_go_on_alongside_a_fork(stage: Stage, tools: Reversible, outside: Outside) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.post, {"name": "own"})
        await ctx.call(tools.book, {"name": "own"})
        await ctx.signal("go")
        return End({})

    run = stage.start(agent_of(node, name="undoes-beside", tools=tools.all()))
    everything(stage)
    lifecycle.pause(run.pk, by=OLGA, justification=WHY)
    made = fork(fresh(run), 1)
    everything(stage)
    say(made, AGAIN)
    everything(stage)
    outside.trouble("unbook", BusinessFailure("not now"))
    lifecycle.cancel(run.pk, by=OLGA, justification=WHY, effects="undo")
    everything(stage)
    lifecycle.pause(run.pk, by=OLGA, justification=WHY)
    lifecycle.resume(run.pk, by=OLGA, justification=WHY)
    assert fresh(run).state == "waiting_human"
    answer(run, "retry")
    everything(stage)
    assert fresh(run).state == "cancelled" and fresh(made).ended_at is None
    assert names(outside).count("unbook") == names(outside).count("unpost") == 1
    all_sound()


def test_what_has_undone_is_not_retried_alongside_a_fork(stage: Stage, tools: Reversible, outside: Outside) -> None:
    run = stage.start(family(tools))
    everything(stage)
    assert fresh(run).state == "failed" and names(outside) == ["post", "unpost"]
    made = fork(fresh(run), 1)
    everything(stage)
    with pytest.raises(IllegalTransition):
        lifecycle.retry(run.pk, by=OLGA, justification=WHY)
    assert fresh(made).forked_from == run.pk and fresh(run).state == "failed"
