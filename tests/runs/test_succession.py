"""Runs that go on as others, on the real database: one commit, one heir, one budget, one key, links that verify."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from durableagents import Agent, Budget, Context, End, Handoff, Keyword, Renew
from ledger import events as e
from ledger.errors import IllegalTransition
from ledger.models import Event, Head
from runs.engine.succession.heirs import heir_id
from runs.models import Attribute, Run, Signal
from runs.services import authority, lifecycle, signals
from runs.services.messages import sending
from runs.services.starts import keys, turns
from runs.services.starts.keys import KeyTaken, Wanted
from runs.services.succession import chain
from runs.workers import timers
from tests.runs.fold import check_against_journal
from tests.runs.stage import Stage, at_once, events, fresh, head, kinds, now, output, problems
from tests.runs.test_children import children, everything, parent_of
from tests.world import FIONA, OLGA, SHOP, Asked, Done, Item, Notes, Outside, Toolbox, agent_of, ends_with

pytestmark = pytest.mark.django_db


def counting(tools: Toolbox, turns: int, **more: Any) -> Agent:
    """Orders one thing in each run, and ends when it has `turns`; *wait* waits for a signal before."""

    async def work(state: Notes, ctx: Context) -> Any:
        if state.asked.text == "wait":
            state.seen.append(await ctx.signal("go"))
        done = await ctx.call(tools.order, Item(name=f"t{len(state.seen)}"))
        state.seen.append(done.ref)
        return End(Done(ref=",".join(map(str, state.seen)))) if len(state.seen) >= turns else Renew(state)

    return agent_of(work, tools=tools.all(), output=Done, **more)


def heirs(run: Run) -> list[Run]:
    return list(chain.heirs(run))


def whole(run: Run) -> None:
    for each in (run, *heirs(run)):
        check_against_journal(each)


def test_a_renewed_run_and_its_heir_are_one_commit(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(counting(tools, 3), text="ours")
    everything(stage)
    second, third = heirs(run)
    first = fresh(run)
    assert (str(first.state), first.goes_on_as, first.goes_on_by) == ("completed", second.pk, "renewal")
    assert str(second.pk) == heir_id(str(run.pk)) and (second.came_from, second.first, second.turn) == (
        run.pk, run.pk, 1,
    )  # fmt: skip
    assert (third.came_from, third.first, third.turn) == (second.pk, run.pk, 2) and third.goes_on_as is None
    assert output(third)["ref"] == "order:t0,order:t1,order:t2" and output(run) is None
    assert (second.creator, second.trace_id, second.graph_id) == (run.creator, run.trace_id, run.graph_id)
    assert kinds(second)[:2] == ["RunCreated", "RunCarriedOn"] and len(outside.executed()) == 3
    whole(run)


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_worker_that_dies_around_the_commit_leaves_one_run_that_goes_on(
    stage: Stage, tools: Toolbox, outside: Outside, how: str
) -> None:
    from runs.journal.postgres import PgJournal
    from tests.world import Killed

    run = stage.start(counting(tools, 2))
    succeed, deaths = PgJournal.succeed, [how]

    async def dying(self: PgJournal, *args: Any) -> Any:
        if not deaths:
            return await succeed(self, *args)
        if deaths.pop() == "after":
            await succeed(self, *args)
        raise Killed(how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PgJournal, "succeed", dying)
        stage.settle(run)
        everything(stage)
    (second,) = heirs(run)
    assert output(second)["ref"] == "order:t0,order:t1" and len(outside.executed()) == 2
    whole(run)


def test_a_second_heir_is_refused_by_the_database(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 2))
    everything(stage)
    other = stage.start(counting(tools, 1))
    with pytest.raises(DatabaseError, match="runs_run_one_heir"), transaction.atomic():
        Run.objects.filter(pk=other.pk).update(came_from=run.pk)
    for change in ({"goes_on_as": other.pk}, {"goes_on_by": "handoff"}):
        with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
            Run.objects.filter(pk=run.pk).update(**change)
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
        Run.objects.filter(came_from=run.pk).update(first=other.pk)


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "retry"])
def test_acts_on_one_that_has_gone_on_are_refused_and_name_the_other(stage: Stage, tools: Toolbox, action: str) -> None:
    run = stage.start(counting(tools, 2))
    stage.drive()
    (second,) = heirs(run)
    with pytest.raises(IllegalTransition, match=f"goes on as run {second.pk}"):
        getattr(lifecycle, action)(run.pk, by=OLGA, justification="why not")
    assert str(fresh(second).state) == "pending" and problems(run) == []


def test_a_pause_or_cancel_that_comes_first_is_done_first(stage: Stage, tools: Toolbox) -> None:
    from runs.journal.postgres import PgJournal

    run = stage.start(counting(tools, 2))
    estate = PgJournal.estate
    acts: list[Callable[[], Any]] = [lambda: lifecycle.pause(run.pk, by=OLGA, justification="wait a moment")]

    async def asked(self: PgJournal) -> Any:
        import asyncio

        if acts:
            await asyncio.to_thread(_apart, acts.pop())
        return await estate(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PgJournal, "estate", asked)
        assert stage.drive() == "paused" and heirs(run) == []
        lifecycle.resume(run.pk, by=OLGA, justification="go on")
        acts.append(lambda: lifecycle.cancel(run.pk, by=OLGA, justification="enough"))
        assert stage.drive() == "cancelled" and heirs(run) == []
    whole(run)


def _apart(act: Callable[[], Any]) -> None:
    try:
        act()
    finally:
        connection.close()


# --- what goes along --------------------------------------------------------------------------------------------------


def test_what_is_left_of_the_budget_and_of_the_time_goes_along(stage: Stage, tools: Toolbox) -> None:
    agent = counting(tools, 4, attributes={"customer": Keyword()})
    run = lifecycle.start(
        agent.graph_id, {}, by=SHOP, tags=["late"], budget=Budget(tool_calls=3, wall_seconds=3600),
        attributes={"customer": "ACME"},
    )  # fmt: skip
    for _ in range(3):
        assert stage.drive() == "completed"
    *_, fourth = heirs(run)
    assert [head(each).cap_tool_calls for each in (run, *heirs(run))] == [3, 2, 1, 0]
    assert {each.time_up_at for each in heirs(run)} == {fresh(run).time_up_at}
    assert fourth.tags == ["late"] and Attribute.objects.get(run_id=fourth.pk, name="customer").word == "ACME"
    assert stage.drive() == "paused" and str(fresh(fourth).state) == "paused"
    whole(run)


def test_a_signal_reaches_the_newest_and_is_one_however_often_it_is_sent(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 3), text="wait")
    stage.drive()
    sent = signals.signal(run.pk, "go", "a", by=SHOP, sender_id="1")
    signals.signal(run.pk, "go", "b", by=SHOP, sender_id="2")
    everything(stage)
    (second,) = heirs(run)
    assert sent.run == run.pk and str(fresh(second).state) == "completed"
    assert output(second)["ref"] == "a,order:t1,b,order:t3"
    assert [x.payload for x in events(second, e.SignalCarried)] == ["b"]
    again = [signals.signal(run.pk, "go", text, by=SHOP, sender_id=id) for id, text in (("1", "a"), ("2", "b"))]
    assert [(x.run, x.is_new) for x in again] == [(run.pk, False), (second.pk, False)]
    with pytest.raises(IllegalTransition):
        signals.signal(run.pk, "go", "c", by=SHOP)
    whole(run)


def test_a_signal_that_meets_the_renewal_is_not_lost(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 3), text="wait")
    stage.drive()
    signals.signal(run.pk, "go", "a", by=SHOP)
    at_once(stage.drive, *[lambda n=n: signals.signal(run.pk, "go", n, by=SHOP, sender_id=f"s{n}") for n in range(5)])
    everything(stage)
    newest = chain.newest(run.pk)
    took = [row.name for row in Signal.objects.filter(chain.is_of_chain(newest), taken_by__isnull=False)]
    assert len(took) == 2 and str(newest.state) == "completed"
    whole(run)


def test_a_message_reaches_the_newest(stage: Stage, tools: Toolbox) -> None:
    async def node(state: Notes, ctx: Context) -> Any:
        if not state.seen:
            return Renew(Notes(seen=["renewed"]))
        await ctx.message("note")
        return End(state.seen)

    agent = agent_of(node)

    @agent.message(takes=Item)
    def note(state: Notes, request: Item) -> None:
        state.seen.append(request.name)

    run = stage.start(agent)
    stage.drive()
    stage.drive()
    sent = sending.send(run.pk, "note", {"name": "a"}, by=SHOP, sender_id="m")
    (second,) = heirs(run)
    assert sent.message.run_id == second.pk
    assert not sending.send(run.pk, "note", {"name": "a"}, by=SHOP, sender_id="m").is_new
    everything(stage)
    assert output(second) == ["renewed", "a"]
    whole(run)


# --- keys -------------------------------------------------------------------------------------------------------------


def begin(agent: Agent, rule: str = "refuse", **more: Any) -> Run:
    with transaction.atomic():
        wanted = Wanted(agent.graph_id, {"text": "go"} | more, business_key="k", on_conflict=rule)
        return keys.start(wanted, by=OLGA).run


def test_the_key_never_falls_free_between_them(stage: Stage, tools: Toolbox) -> None:
    agent = counting(tools, 3)
    run = begin(agent)
    queued = begin(agent, "queue")
    stage.drive()
    (second,) = heirs(run)
    assert second.business_key == "k" and begin(agent, "join").pk == second.pk
    with pytest.raises(KeyTaken, match=str(second.pk)):
        begin(agent)
    timers.sweep()
    assert fresh(queued).is_queued and not turns.ended(), "its turn comes at the end of all"
    for _ in range(2):
        stage.drive()
    turns.pass_on_from([each.pk for each in heirs(run)])
    assert not fresh(queued).is_queued
    everything(stage)
    whole(run), whole(queued)


def test_debounce_does_not_take_the_place_of_one_that_has_begun_before_it_was_renewed(
    stage: Stage, tools: Toolbox
) -> None:
    agent = counting(tools, 3)
    run = begin(agent)
    stage.drive()
    with transaction.atomic():
        wanted = Wanted(agent.graph_id, {}, business_key="k", on_conflict="debounce", window=timedelta(0))
        other = keys.start(wanted, by=SHOP).run
    (second,) = heirs(run)
    assert str(fresh(second).state) == "pending" and fresh(other).is_queued


def test_replacing_one_that_is_renewed_in_that_moment_cancels_its_heir(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = counting(tools, 3)
    run = begin(agent)
    looked = keys.living
    renewals = [stage.drive]

    def living(agent: str, key: str) -> list[Run]:
        found = looked(agent, key)
        if renewals:
            at_once(renewals.pop())
        return found

    monkeypatch.setattr(keys, "living", living)
    other = begin(agent, "replace")
    (second,) = heirs(run)
    assert str(fresh(second).state) == "cancelled" and str(fresh(other).state) == "pending"


# --- families ---------------------------------------------------------------------------------------------------------


def test_a_parent_hears_of_the_end_of_all_and_pays_for_all(stage: Stage, tools: Toolbox) -> None:
    agent = counting(tools, 3, name="helper")
    run = stage.start(parent_of(agent, "a", budget=Budget(tool_calls=5)))
    stage.drive(), stage.drive()
    (child, second) = children(run)
    assert not fresh(run).waits.filter(resolved_at__isnull=False).exists(), "a renewal is no end"  # type: ignore[attr-defined]
    assert fresh(child).is_told and second.parent == run.pk and second.depth == 1
    everything(stage)
    assert output(run) == ["order:t0,order:t1,order:t2"]
    (told,) = events(run, e.ChildEnded)
    assert told.child == str(child.pk) and told.payload["run"] == str(children(run)[-1].pk)
    assert (told.tool_calls, head(run).tool_calls) == (3, 3)
    check_against_journal(run)
    for each in children(run):
        check_against_journal(each)


def test_a_cancelled_parent_takes_the_newest_with_it(stage: Stage, tools: Toolbox) -> None:
    agent = counting(tools, 3, name="helper")
    run = stage.start(parent_of(agent, "a"))
    stage.drive(), stage.drive()
    with transaction.atomic():
        lifecycle.cancel(run.pk, by=OLGA, justification="enough")
    timers.sweep()
    everything(stage)
    assert [str(each.state) for each in children(run)] == ["completed", "cancelled"]


def test_a_child_that_hands_off_answers_with_the_others_output(stage: Stage, tools: Toolbox) -> None:
    agent_of(ends_with({"ref": "from the desk"}), name="desk", output=Done)

    async def node(state: Notes, ctx: Context) -> Any:
        return Handoff("desk", Asked(text="over to you"))

    run = stage.start(parent_of(agent_of(node, name="helper", output=Done), "a"))
    everything(stage)
    assert output(run) == ["from the desk"] and [each.agent for each in children(run)] == ["helper", "desk"]
    assert events(run, e.ChildEnded)[0].agent == "desk@1.0.0"
    for each in (run, *children(run)):
        check_against_journal(each)


def test_an_output_of_the_other_agent_that_does_not_fit_is_told_with_its_name(stage: Stage) -> None:
    agent_of(ends_with({"other": 1}), name="desk")

    async def node(state: Notes, ctx: Context) -> Any:
        return Handoff("desk", {})

    helper = agent_of(node, name="helper", output=Done)

    async def parent(state: Notes, ctx: Context) -> Any:
        await ctx.child(helper, {})

    run = stage.start(agent_of(parent))
    everything(stage)
    assert str(fresh(run).state) == "failed"
    assert "it handed off to desk@1.0.0, whose output does not fit" in str(events(run, e.RunFailed)[0].payload)


# --- people -----------------------------------------------------------------------------------------------------------


def test_who_had_a_hand_in_one_of_them_had_it_in_all(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 3), text="wait")
    stage.drive()
    signals.signal(run.pk, "go", "a", by=FIONA)
    stage.drive()
    (second,) = heirs(run)
    assert "sent this run a signal" in str(authority.own_act(second, FIONA.person, FIONA.name))
    assert authority.own_act(second, OLGA.person, OLGA.name) is None
    assert authority.own_act(second, SHOP.person, SHOP.name) == "started this run"


# --- what is forged is found ------------------------------------------------------------------------------------------


def _owner(statement: str, *values: Any) -> None:
    """As whoever owns the database might: past every trigger."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            cursor.execute(statement, values)
        finally:
            cursor.execute("SET session_replication_role = origin")


@pytest.mark.parametrize(
    ("statement", "where", "says"),
    [
        ("UPDATE runs_run SET goes_on_as = %(other)s WHERE id = %(first)s", "first", "goes_on_as says"),
        ("UPDATE runs_run SET goes_on_as = NULL WHERE id = %(first)s", "first", "goes_on_as says"),
        ("UPDATE runs_run SET goes_on_by = 'handoff' WHERE id = %(first)s", "first", "goes_on_by says"),
        ("UPDATE runs_run SET came_from = %(other)s WHERE id = %(second)s", "second", "came_from says"),
        ("UPDATE runs_run SET came_from = %(first)s WHERE id = %(third)s", "third", "came_from says"),
        ("UPDATE runs_run SET first = %(second)s WHERE id = %(third)s", "third", "first says"),
        ("UPDATE runs_run SET turn = 7 WHERE id = %(second)s", "second", "turn says"),
        ("UPDATE runs_run SET business_key = 'k' WHERE id = %(second)s", "second", "business_key says"),
        ("DELETE FROM runs_run WHERE id = %(first)s", "second", "which it goes on from"),
        ("DELETE FROM runs_run WHERE id = %(second)s", "first", "which it goes on as"),
        ("DELETE FROM ledger_event WHERE run_id = %(first)s AND kind = 'RunRenewed'", "second", "does not say so"),
        ("DELETE FROM ledger_event WHERE run_id = %(second)s AND seq = 2", "first", "does not say so"),
    ],
)
def test_a_forged_link_is_found(stage: Stage, tools: Toolbox, statement: str, where: str, says: str) -> None:
    run = stage.start(counting(tools, 3))
    everything(stage)
    second, third = heirs(run)
    named = {"first": run.pk, "second": second.pk, "third": third.pk, "other": uuid4()}
    if "came_from = %(first)s" in statement:
        _owner("UPDATE runs_run SET came_from = NULL WHERE id = %s", second.pk)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(statement, named)
        cursor.execute("SET session_replication_role = origin")
    found = problems(Run(pk=named[where]))
    assert any(says in one or ("is gone" in one and "goes on" in one) for one in found), found


def test_an_heir_that_its_origin_knows_nothing_of_is_found_and_its_parent_does_not_believe_it(
    stage: Stage, tools: Toolbox
) -> None:
    """Whoever can write rows makes a run that says it goes on from another."""
    run = stage.start(counting(tools, 1))
    forged = stage.start(counting(tools, 1))
    everything(stage)
    Run.objects.filter(pk=forged.pk).update(came_from=run.pk, first=run.pk, turn=1)
    assert any("came_from says" in one for one in problems(forged))


# --- a thousand of them -----------------------------------------------------------------------------------------------


def test_renewed_often_each_costs_as_much_as_the_first(stage: Stage) -> None:
    async def node(state: Notes, ctx: Context) -> Any:
        state.asked.amount += 1
        return End(1) if state.asked.amount > 60 else Renew(state)

    run = stage.start(agent_of(node, signals=["kept"]))
    signals.signal(run.pk, "kept", "a", by=SHOP, sender_id="s")
    took = []
    for _ in range(60):
        began = now()
        assert stage.drive() == "completed"
        took.append((now() - began).total_seconds())
    every = [run, *heirs(run)]
    assert len(every) == 60 and fresh(every[-1]).goes_on_as is None
    assert {head(each).seq for each in every[2:-1]} == {head(every[1]).seq}
    assert not signals.signal(run.pk, "kept", "a", by=SHOP, sender_id="s").is_new
    middle = sorted(took)[len(took) // 2]
    assert sorted(took[-20:])[10] < 5 * max(middle, 0.01)
    assert all(problems(each) == [] for each in every[::20])


def test_a_link_that_nobody_knows_is_not_found(stage: Stage) -> None:
    with pytest.raises(Exception, match="no run"):
        chain.newest(UUID(int=7))
    assert Head.objects.count() == Event.objects.count() == 0
