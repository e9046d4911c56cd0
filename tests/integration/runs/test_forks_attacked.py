from __future__ import annotations

from typing import Any

import pytest

from durableagents import Agent, Context, End, Failure, Renew
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from runs.services import lifecycle
from runs.services.forks.points import cutting
from runs.services.forks.starting_again import remains
from tests.integration.runs.families_undone import everything as to_its_end
from tests.integration.runs.families_undone import family
from tests.integration.runs.stage import Stage, events, fresh, problems
from tests.integration.runs.test_children import everything
from tests.integration.runs.test_forks import TAKE, asked, fork, say
from tests.unit.engine.undoings import Reversible, names
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of

WHY = "because it must be"


# --- runs that go on as others ------------------------------------------------------------------------------------


def turns(tools: Toolbox, name: str, *, ends_well: bool) -> Agent:
    """A mail, and as another run an order."""

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


# --- what was undone ----------------------------------------------------------------------------------------------


@pytest.fixture
def undoing(outside: Outside) -> Reversible:
    return Reversible(outside)


def test_no_fork_goes_on_from_what_was_undone_since(stage: Stage, undoing: Reversible, outside: Outside) -> None:
    async def one(state: Notes, ctx: Context) -> str:
        state.seen.append((await ctx.call(undoing.book, Item(name="a"))).ref)
        return "two"

    async def two(state: Notes, ctx: Context) -> End:
        raise Failure("no luck")

    run = stage.start(agent_of(one, two, tools=undoing.all(), name="forked-after"))
    assert stage.settle(run) == "failed" and names(outside) == ["book", "unbook"]
    with pytest.raises(InvalidInput, match="was undone since: book"):
        cutting(fresh(run), 2)
    assert [x.outcome for x in cutting(fresh(run), 1).effects if x.tool == "book"] == ["undone"]


def test_a_child_that_was_undone_stands_for_nothing(stage: Stage, undoing: Reversible) -> None:
    run = stage.start(family(undoing, "ok"))
    to_its_end(stage)
    (child,) = [x for x in remains(fresh(run)).effects if x.tool.startswith("child:")]
    assert (child.outcome, child.has_result) == ("undone", False)


# --- what others did meanwhile ------------------------------------------------------------------------------------


def test_effect_of_a_fork_is_not_repeated_by_related_runs(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    broken = [True]

    async def look(state: Notes, ctx: Context) -> str:
        return "pay"

    async def pay(state: Notes, ctx: Context) -> End:
        if broken[0]:
            raise Failure("no luck")
        await ctx.call(tools.order, Item(name="a"))
        return End()

    run = stage.start(agent_of(look, pay, tools=tools.all(), name="forked-twice"))
    assert stage.settle(run) == "failed"
    broken[0] = False
    one = fork(run, 2)
    assert stage.settle(one) == "completed"
    two = fork(run, 2)
    assert stage.settle(two) == "parked" and "Nobody can say that all" in asked(two).detail["about"]
    with pytest.raises(IllegalTransition, match=str(two.pk)):
        lifecycle.retry(run.pk, by=OLGA, justification=WHY)
    assert len(outside.executed("order")) == 1


def test_a_fork_that_did_nothing_does_not_keep_its_origin_from_a_retry(stage: Stage, tools: Toolbox) -> None:
    broken = [True]

    async def pay(state: Notes, ctx: Context) -> End:
        if broken[0]:
            raise Failure("no luck")
        return End()

    run = stage.start(agent_of(pay, tools=tools.all(), name="forked-idle"))
    assert stage.settle(run) == "failed"
    assert stage.settle(fork(run, 1)) == "failed"
    broken[0] = False
    lifecycle.retry(run.pk, by=OLGA, justification=WHY)
    assert stage.settle(run) == "completed"


# --- other versions -----------------------------------------------------------------------------------------------


# --- damage -------------------------------------------------------------------------------------------------------
