"""Forks and new starts attacked: what they meet besides a sound run that ended. Heirs, undoing, retries, other
versions, damage."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from durableagents import Agent, Context, End, Failure, Renew, ReplayClass, ToolCall, tool
from ledger import events as e
from ledger.errors import IllegalTransition, InvalidInput
from runs.models import Run
from runs.services import lifecycle
from runs.services.families import reopening
from runs.services.forks.points import NotToBeTrusted, cutting, points
from runs.services.forks.starting_again import Again, Verdict, remains, start_again
from runs.services.migrating import acts
from runs.services.migrating.bodies import MigrateBody
from tests.engine.undoings import Reversible, failing, names
from tests.runs.families_undone import everything as to_its_end
from tests.runs.families_undone import family
from tests.runs.moving import asked as wish
from tests.runs.stage import Stage, events, facts, fresh, kinds, problems
from tests.runs.test_children import everything
from tests.runs.test_forks import AGAIN, TAKE, asked, fork, orders, say
from tests.runs.test_start_again import damaged
from tests.runs.test_undo_families import child_of, until_reopened
from tests.world import OLGA, Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
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


def test_a_fork_does_not_go_on_as_a_run_that_nobody_is_asked_about(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    run = stage.start(turns(tools, "forked-turns", ends_well=True))
    everything(stage)
    made = fork(run, 1)
    stage.settle(made)
    say(made, TAKE)
    everything(stage)
    (stopped,) = events(made, e.OperatorNeeded)
    assert stopped.reason == "fork_goes_on" and fresh(made).goes_on_as is None
    assert len(outside.executed("mail")) == len(outside.executed("order")) == 1 and problems(made) == []


def test_a_run_that_went_on_from_another_is_started_again_from_where_it_began(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    run = stage.start(turns(tools, "restarted-turns", ends_well=False))
    everything(stage)
    heir = Run.objects.get(pk=fresh(run).goes_on_as)
    assert heir.state == "failed"
    audit = [Verdict(x.slot, x.attempt, "happened") for x in remains(heir).effects]
    made = start_again(heir.pk, Again(audit), by=OLGA, justification=WHY)
    everything(stage)
    assert fresh(made).state == "failed" and problems(made) == []  # as it failed before: what it did was taken over
    assert len(outside.executed("mail")) == len(outside.executed("order")) == 1


# --- what was undone ----------------------------------------------------------------------------------------------


@pytest.fixture
def undoing(outside: Outside) -> Reversible:
    return Reversible(outside)


def test_an_undo_is_made_for_what_the_new_run_did_whatever_the_old_one_undid(
    stage: Stage, undoing: Reversible, outside: Outside
) -> None:
    run = stage.start(failing(undoing, [["book"]]))
    assert stage.settle(run) == "failed" and names(outside) == ["book", "unbook"]
    audit = [
        Verdict(x.slot, x.attempt, "did_not" if x.outcome == "undone" else "happened")
        for x in remains(fresh(run)).effects
    ]
    made = start_again(run.pk, Again(audit), by=OLGA, justification=WHY)
    stage.settle(made)
    assert names(outside) == ["book", "unbook", "book", "unbook"] and problems(made) == []
    assert "compensated" in str(facts(made)) and fresh(made).state == "failed"


def test_a_run_that_undoes_is_forked_when_it_has_ended(stage: Stage, undoing: Reversible) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        return "work"

    async def work(state: Notes, ctx: Context) -> End:
        await ctx.call(undoing.buy, Item(name="b", amount=1000))
        raise Failure("no luck")

    run = stage.start(agent_of(first, work, tools=undoing.all(), name="forked-undoing"))
    stage.settle(run)
    assert fresh(run).is_undoing and fresh(run).ended_at is None
    with pytest.raises(InvalidInput, match="undoes its effects"):
        fork(fresh(run), 2)


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


@pytest.mark.parametrize(
    "clear",
    [
        "'\\xff00'::bytea",
        "replace(convert_from(clear, 'UTF8'), 'ToolInvoked', 'ToolInvokes')::bytea",
        '\'{"kind":"ToolInvoked"}\'::bytea',
        "'[]'::bytea",
        "clear || ' '::bytea",
    ],
    ids=["garbage", "kind", "missing", "list", "longer"],
)
def test_where_what_it_did_can_not_be_read_no_visit_of_a_run_that_undid_is_offered(
    stage: Stage, undoing: Reversible, clear: str
) -> None:
    run = stage.start(failing(undoing, [["book"], ["book"]], name="forked-unreadable"))
    assert stage.settle(run) == "failed"
    damaged(
        f"UPDATE ledger_event SET clear = {clear} WHERE run_id = %s AND seq = "
        "(SELECT min(seq) FROM ledger_event WHERE run_id = %s AND kind = 'ToolInvoked')",
        run.pk,
        run.pk,
    )
    found = points(fresh(run))
    assert all("was changed: its content does not give its hash" in x.problem for x in found[:2])
    assert "here it began to undo" in found[2].problem
    for visit in (1, 2):
        with pytest.raises(NotToBeTrusted, match="was changed"):
            cutting(fresh(run), visit)


def test_a_child_that_was_undone_stands_for_nothing(stage: Stage, undoing: Reversible) -> None:
    run = stage.start(family(undoing, "ok"))
    to_its_end(stage)
    (child,) = [x for x in remains(fresh(run)).effects if x.tool.startswith("child:")]
    assert (child.outcome, child.has_result) == ("undone", False)


def test_a_child_that_is_to_be_undone_is_not_moved(stage: Stage, undoing: Reversible) -> None:
    run = stage.start(family(undoing, "ok"))
    child = until_reopened(stage, run)

    async def work(state: Notes, ctx: Context) -> End:
        return End({"done": True})

    agent_of(work, name=child.agent, version="9.0.0", tools=undoing.all())
    body = {"from_version": child.version, "to_version": "9.0.0", "nodes": {"work": "work"}, "justification": WHY}
    (found,) = acts.migrate(child.agent, MigrateBody.model_validate(body | {"runs": [child.id]}), by=OLGA)
    assert (found.is_moved, found.code) == (False, "undoing") and fresh(child).is_undoing


def test_two_sweeps_reopen_a_child_once_and_refuse_it_never(
    stage: Stage, undoing: Reversible, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stage.start(family(undoing, "ok"))
    real, others = reopening.reopen, [reopening.reopen_those_waited_for]

    def slow(child: Any, parent: Any) -> Any:
        if others:
            others.pop()()  # another process sweeps in this very moment
        return real(child, parent)

    monkeypatch.setattr(reopening, "reopen", slow)
    to_its_end(stage)
    assert not others and names(outside) == ["post", "book", "unbook", "unpost"]
    assert fresh(run).state == "failed" and child_of(run).state == "cancelled" and problems(fresh(run)) == []


# --- what others did meanwhile ------------------------------------------------------------------------------------


def test_what_a_fork_did_is_not_done_again_by_its_origin_or_another_fork(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
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


class Amount(BaseModel):
    amount: int = 0


class Cents(BaseModel):
    cents: int = 0


def priced(version: str, shape: type[BaseModel], buys: Any) -> Agent:
    async def first(state: Any, ctx: Context) -> str:
        return "pay"

    async def pay(state: Any, ctx: Context) -> End:
        await ctx.call(buys, Item(name="a", amount=70))
        return End()

    return agent_of(
        first,
        pay,
        tools=[buys],
        name="forked-versions",
        version=version,
        state=shape,
        input=shape,
        initial=lambda given: given,
    )


def test_a_tool_by_another_name_is_asked_about_and_a_lost_field_is_refused(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    async def purchase(args: Item, call: ToolCall) -> Done:
        return await outside.take_async("purchase", args, call)

    renamed = tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, system="outside", effect="buys", timeout=5)(purchase)
    run = stage.start(priced("1.0.0", Amount, tools.order))
    assert stage.settle(run) == "completed"
    priced("2.0.0", Cents, renamed)
    with pytest.raises(InvalidInput, match="has no place for amount"):
        fork(run, 2, version="2.0.0")
    made = fork(run, 2, version="2.0.0", state={"cents": 7000})
    assert stage.settle(made) == "parked" and asked(made).detail["of"] == "operator"
    say(made, AGAIN)
    assert stage.settle(made) == "completed" and problems(made) == []
    assert len(outside.executed("purchase")) == len(outside.executed("order")) == 1


def test_a_what_if_is_not_moved(stage: Stage, tools: Toolbox) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        return "work"

    async def work(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        return End()

    run = stage.start(agent_of(first, work, tools=tools.all(), name="mover", version="1.0.0"))
    assert stage.settle(run) == "completed"
    agent_of(first, work, tools=tools.all(), name="mover", version="2.0.0")
    made = fork(run, 2, what_if=True)
    body = MigrateBody.model_validate(wish(made, nodes={"first": "first", "work": "work"}) | {"justification": WHY})
    (found,) = acts.migrate("mover", body, by=OLGA)
    assert (found.is_moved, found.code) == (False, "what_if")


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what",
    [
        "DELETE FROM ledger_event WHERE run_id = %s AND seq = 2",
        "DELETE FROM ledger_event WHERE run_id = %s AND seq BETWEEN 2 AND 4",
        "UPDATE ledger_event SET kind = 'Other' WHERE run_id = %s AND seq = 2",
    ],
)
def test_a_fork_whose_beginning_is_lost_is_no_ordinary_run(
    stage: Stage, tools: Toolbox, outside: Outside, what: str
) -> None:
    run = stage.start(orders(tools), text="ours")
    assert stage.settle(run) == "completed"
    made = fork(run, 1)
    assert stage.settle(made) == "parked" and len(outside.executed("order")) == 2
    damaged(what, made.pk)
    say(made, {"decision": "no"})
    stage.settle(made)
    assert len(outside.executed("order")) == 2 and kinds(made)[-3:].count("OperatorNeeded") == 1
