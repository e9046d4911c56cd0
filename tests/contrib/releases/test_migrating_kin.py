from __future__ import annotations

from typing import Any

import pytest

from durableagents import Agent, Context, End, Failure, Renew
from durableagents.contrib.releases import migrating
from durableagents.contrib.releases.migration_requests import MigrateBody
from ledger import events as e
from runs.engine.budget import Budget
from runs.models import Run
from runs.services import lifecycle
from runs.services.budgets.raising import set_budget
from runs.services.families import ends
from runs.services.messages import sending
from tests.contrib.releases.moving import asked, moved, old, renamed, seen
from tests.contrib.releases.test_migrating import go, names, parked, sound
from tests.contrib.releases.test_migrating_visits import ONE, of_one, to_the_end
from tests.integration.runs.stage import Stage, dump, events, fresh, kinds, output, waiting
from tests.world import OLGA, SHOP, Asked, Item, Notes, Outside, Toolbox, agent_of

WHY = "the old one is wrong"
WORK = {"work": "work"}


# --- parents and children ---------------------------------------------------------------------------------------------


async def work(state: Notes, ctx: Context) -> End:
    if state.asked.text == "bad":
        raise Failure("no luck", code="no_luck")
    await ctx.signal("go")
    return End(f"{state.asked.text} done")


def family(stage: Stage, *texts: str) -> tuple[Run, list[Run], Any]:
    worker = agent_of(work, name="mover-child")

    async def hold(state: Notes, ctx: Context) -> End:
        return End(await ctx.gather(*(ctx.child(worker, Asked(text=text)) for text in texts)))

    run = parked(stage, of_one(hold))
    children = list(Run.objects.filter(parent=run.id).order_by("created_at", "id"))
    while stage.drive() != "idle":
        pass
    return run, children, hold


def child_moved(child: Run, **more: Any) -> Any:
    body = asked(child, nodes=WORK) | {"justification": WHY} | more
    (found,) = migrating.migrate("mover-child", MigrateBody.model_validate(body), by=OLGA)
    return found


def test_a_parent_and_its_children_are_moved_each_by_itself(stage: Stage) -> None:
    run, children, hold = family(stage, "a", "b")
    of_one(hold, version="2.0.0")
    agent_of(work, name="mover-child", version="2.0.0")
    assert child_moved(children[0]).how == "replayed"
    assert moved(run, nodes=ONE).how == "replayed"
    assert fresh(children[1]).graph_id == "mover-child@1.0.0", "no child goes along unasked"
    for child in children:
        go(child)
        to_the_end(stage, child)
    assert output(run) == ["a done", "b done"]
    for each in (run, *children):
        sound(each)


def test_a_child_s_end_that_nobody_has_told_comes_to_the_moved_parent(stage: Stage) -> None:
    run, (child,), hold = family(stage, "a")
    of_one(hold, version="2.0.0")
    go(child)
    assert stage.settle(child) == "completed" and moved(run, nodes=ONE).how == "replayed"
    ends.tell_parent(child.pk)
    assert stage.settle(run) == "completed" and output(run) == ["a done"]
    sound(run)


def test_a_parent_that_has_heard_of_a_bad_end_and_not_gone_on_is_moved_in_its_middle(stage: Stage) -> None:
    run, (child,), hold = family(stage, "a")
    of_one(hold, version="2.0.0")
    lifecycle.cancel(child.pk, by=OLGA, justification=WHY)
    ends.tell_parent(child.pk)
    assert kinds(run)[-1] == "ChildEnded" and moved(run, nodes=ONE).how == "replayed"
    assert stage.settle(run) == "failed" and fresh(run).error_code == "child_failed"
    sound(run)


def test_a_failed_child_is_retried_with_its_move_until_its_parent_has_heard(stage: Stage) -> None:
    worker = agent_of(work, name="mover-child")

    async def hold(state: Notes, ctx: Context) -> End:
        try:
            return End(await ctx.child(worker, Asked(text="bad")))
        except Exception:
            await ctx.signal("go")
            return End("without")

    async def mended(state: Notes, ctx: Context) -> End:
        return End("mended")

    run = parked(stage, of_one(hold))
    child = Run.objects.get(parent=run.id)
    assert stage.settle(child) == "failed"
    agent_of(mended, name="mover-child", version="2.0.0")
    ends.tell_parent(child.pk)
    stage.settle(run)
    assert waiting(run)[0].kind == "signal", "it has gone on without it"
    before = dump()
    found = child_moved(child, nodes={"work": "mended"}, retry=True)
    assert (found.code, found.is_moved) == ("illegal-state", False) and "continued after this run ended" in found.why
    assert dump() == before


def test_a_failed_child_whose_parent_waits_still_gives_it_its_answer(stage: Stage) -> None:
    run, (child,), _ = family(stage, "bad")
    assert fresh(child).state == "failed" and not fresh(child).is_told

    async def mended(state: Notes, ctx: Context) -> End:
        return End("mended")

    agent_of(mended, name="mover-child", version="2.0.0")
    assert child_moved(child, nodes={"work": "mended"}, retry=True).is_retried
    to_the_end(stage, child)
    assert output(run) == ["mended"]
    sound(run)
    sound(child)


# --- continuations ----------------------------------------------------------------------------------------------------


def renewing() -> Any:
    async def hold(state: Notes, ctx: Context) -> Any:
        await ctx.signal("go")
        return End(state.seen) if state.seen else Renew(Notes(seen=["once"]))

    return hold


def test_what_is_sent_to_a_run_that_went_on_reaches_its_moved_continuation(stage: Stage) -> None:
    hold = renewing()
    run = parked(stage, of_one(hold))
    of_one(hold, version="2.0.0")
    go(run)
    stage.settle(run)
    successor = Run.objects.get(came_from=run.id)
    stage.settle(successor)
    assert moved(successor, nodes=ONE).how == "replayed"
    go(run)  # by the first one's id
    assert stage.settle(successor) == "completed" and output(successor) == ["once"]
    sound(successor)


# --- keys, times and pools --------------------------------------------------------------------------------------------


def ordering(tools: Toolbox, version: str) -> Agent:
    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.order, Item(name="a"))
        await ctx.call(tools.order, Item(name="b"))
        return End(version)

    return of_one(hold, tools=tools.all(), version=version)


# --- messages ---------------------------------------------------------------------------------------------------------


def noting(tools: Toolbox, version: str, *, look: str = "a", takes: bool = True) -> Agent:
    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.look, {"name": look})
        await ctx.signal("go")
        return End(state.seen)

    agent = of_one(hold, tools=tools.all(), version=version)
    if takes:

        @agent.message(takes=Item)
        def note(state: Notes, request: Item) -> None:
            state.seen.append(request.name)

    return agent


@pytest.mark.parametrize("look", ["a", "b"])
def test_untaken_signals_and_messages_reach_the_new_version(stage: Stage, tools: Toolbox, look: str) -> None:
    run = parked(stage, noting(tools, "1.0.0"))
    noting(tools, "2.0.0", look=look)
    lifecycle.pause(run.id, by=OLGA, justification="a moment")
    sending.send(run.id, "note", {"name": "x", "amount": 1}, by=OLGA)
    go(run, "other")
    assert moved(run, nodes=ONE).how == ("replayed" if look == "a" else "reentered")
    assert fresh(run).state == "paused" and stage.drive() == "idle"
    lifecycle.resume(run.id, by=OLGA, justification="on with it")
    assert stage.settle(run) == "parked"
    go(run)
    assert stage.settle(run) == "completed" and output(run) == ["x"]
    assert [x.name for x in events(run, e.SignalReceived)] == ["other", "go"]
    sound(run)


# --- paused runs ------------------------------------------------------------------------------------------------------


def test_a_paused_run_in_the_middle_of_its_visit_stays_paused(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = parked(stage, old(tools))
    renamed(tools)
    lifecycle.pause(run.id, by=OLGA, justification="a moment")
    assert moved(run).how == "replayed" and fresh(run).state == "paused" and stage.drive() == "idle"
    go(run)
    assert stage.drive() == "idle" and fresh(run).state == "paused"
    lifecycle.resume(run.id, by=OLGA, justification="on with it")
    assert stage.settle(run) == "completed" and output(run) == "new" and names(outside) == ["first", "new end"]
    sound(run)


def at_its_cap(stage: Stage, tools: Toolbox) -> Run:
    run = lifecycle.start(ordering(tools, "1.0.0").graph_id, {"text": "x"}, by=SHOP, budget=Budget(tool_calls=1))
    assert stage.drive() == "paused" and [wait.kind for wait in waiting(run)] == ["budget"]
    return run


def test_moved_run_waits_for_its_budget(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = at_its_cap(stage, tools)
    ordering(tools, "2.0.0")
    assert moved(run, nodes=ONE).how == "replayed"
    assert fresh(run).state == "paused" and stage.drive() == "idle", "a move is no way around the budget"
    assert [wait.kind for wait in waiting(run)] == ["budget"] and names(outside) == ["a"]
    sound(run)
    set_budget(run.id, Budget(tool_calls=5), by=OLGA, justification=WHY)
    assert stage.settle(run) == "completed" and output(run) == "2.0.0" and names(outside) == ["a", "b"]
    sound(run)


@pytest.mark.parametrize("is_paused", [False, True])
def test_open_question_about_a_call_prevents_a_move(stage: Stage, tools: Toolbox, is_paused: bool) -> None:
    async def hold(state: Notes, ctx: Context) -> End:
        done = await ctx.gather(ctx.call(tools.mail, Item(name="a")), ctx.call(tools.look, Item(name="b")))
        return End(len(done))

    run = stage.start(of_one(hold, tools=tools.all()))
    of_one(hold, tools=tools.all(), version="2.0.0")
    stage.kill_at = [("CP4", "mail")]
    stage.settle(run)
    assert "reconcile" in [wait.kind for wait in waiting(run)]
    if is_paused:
        lifecycle.pause(run.id, by=OLGA, justification="a moment")
    kept = dump()
    assert moved(run, nodes=ONE).code == seen(run, nodes=ONE).code == "in_doubt" and dump() == kept
    stage.reconcile(run, "happened", receipt={"ref": "mail:a"}, sender_is_gone=True)
    assert moved(run, nodes=ONE).how == "replayed"
    if is_paused:
        assert fresh(run).state == "paused" and stage.drive() == "idle"
        lifecycle.resume(run.id, by=OLGA, justification="on with it")
    assert stage.settle(run) == "completed" and output(run) == 2
    sound(run)
