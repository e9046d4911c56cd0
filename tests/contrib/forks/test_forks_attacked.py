from __future__ import annotations

from typing import Any

import pytest

from durableagents import Agent, Context, End, Failure, Renew
from durableagents.contrib.forks.starting_again import read_remains
from ledger import events as e
from tests.contrib.forks.test_forks import TAKE, fork, say
from tests.integration.runs.families_undone import everything as to_its_end
from tests.integration.runs.families_undone import family
from tests.integration.runs.stage import Stage, events, fresh, problems
from tests.integration.runs.test_children import everything
from tests.unit.engine.undoings import Reversible
from tests.world import Item, Notes, Outside, Toolbox, agent_of

# --- continuations ------------------------------------------------------------------------------------------------


def turns(tools: Toolbox, name: str, *, ends_well: bool) -> Agent:
    async def work(state: Notes, ctx: Context) -> Any:
        called = tools.order if state.seen else tools.mail
        state.seen.append((await ctx.call(called, Item(name=f"t{len(state.seen)}"))).ref)
        if len(state.seen) < 2:
            return Renew(state)
        if not ends_well:
            raise Failure("no luck")
        return End()

    return agent_of(work, tools=tools.all(), name=name)


def test_renewed_fork_asks_before_its_first_effect_too(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(turns(tools, "forked-turns", ends_well=True))
    everything(stage)
    made = fork(run, 1)
    stage.settle(made)
    say(made, TAKE)
    everything(stage)
    (stopped,) = events(made, e.OperatorNeeded)
    assert stopped.reason == "fork_goes_on" and fresh(made).goes_on_as is None
    assert len(outside.executed("mail")) == len(outside.executed("order")) == 1 and problems(made) == []


# --- undone effects -----------------------------------------------------------------------------------------------


@pytest.fixture
def undoing(outside: Outside) -> Reversible:
    return Reversible(outside)


def test_a_child_that_was_undone_stands_for_nothing(stage: Stage, undoing: Reversible) -> None:
    run = stage.start(family(undoing, "ok"))
    to_its_end(stage)
    (child,) = [x for x in read_remains(fresh(run)).effects if x.tool.startswith("child:")]
    assert (child.outcome, child.has_result) == ("undone", False)
