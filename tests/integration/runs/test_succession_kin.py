"""Continuations and business keys, parents, people, and forged links."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction

from durableagents import Agent, Budget, Context, Handoff
from ledger import events as e
from runs.models import Run
from runs.services import authority, continuation, lifecycle, signals
from runs.services.starts import keys, turns
from runs.services.starts.keys import KeyTaken, Wanted
from runs.workers import timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, events, fresh, head, output, problems
from tests.integration.runs.test_children import children, everything, parent_of
from tests.integration.runs.test_succession import counting, successors, whole
from tests.tampering import tamper, without_triggers
from tests.world import FIONA, OLGA, SHOP, Asked, Done, Notes, Toolbox, agent_of, ends_with

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
    (second,) = successors(run)
    assert second.business_key == "k" and begin(agent, "join").pk == second.pk
    with pytest.raises(KeyTaken, match=str(second.pk)):
        begin(agent)
    timers.sweep()
    assert fresh(queued).is_queued and not turns.ended(), "its turn comes at the end of all"
    for _ in range(2):
        stage.drive()
    turns.pass_on_from([each.pk for each in successors(run)])
    assert not fresh(queued).is_queued
    everything(stage)
    whole(run), whole(queued)


def test_debounce_does_not_replace_a_renewed_run(stage: Stage, tools: Toolbox) -> None:
    agent = counting(tools, 3)
    run = begin(agent)
    stage.drive()
    with transaction.atomic():
        wanted = Wanted(agent.graph_id, {}, business_key="k", on_conflict="debounce", window=timedelta(0))
        other = keys.start(wanted, by=SHOP).run
    (second,) = successors(run)
    assert str(fresh(second).state) == "pending" and fresh(other).is_queued


def test_replacing_a_renewed_run_cancels_continuation(
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
    (second,) = successors(run)
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
    (found,) = events(run, e.ChildEnded)
    assert found.child == str(child.pk) and found.payload["run"] == str(children(run)[-1].pk)
    assert (found.tool_calls, head(run).tool_calls) == (3, 3)
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


def test_who_took_part_in_one_of_them_did_in_all(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(counting(tools, 3), text="wait")
    stage.drive()
    signals.signal(run.pk, "go", "a", by=FIONA)
    stage.drive()
    (second,) = successors(run)
    assert "sent this run a signal" in str(authority.own_act(second, FIONA.person, FIONA.name))
    assert authority.own_act(second, OLGA.person, OLGA.name) is None
    assert authority.own_act(second, SHOP.person, SHOP.name) == "started this run"


# --- forgeries are found ----------------------------------------------------------------------------------------------


@pytest.mark.every(3)
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
        ("DELETE FROM runs_run WHERE id = %(first)s", "second", "the run that it continues, "),
        ("DELETE FROM runs_run WHERE id = %(second)s", "first", "the run that continues it, "),
        ("DELETE FROM ledger_event WHERE run_id = %(first)s AND kind = 'RunRenewed'", "second", "does not name it"),
        ("DELETE FROM ledger_event WHERE run_id = %(second)s AND seq = 2", "first", "does not name it"),
    ],
)
def test_a_forged_link_is_found(stage: Stage, tools: Toolbox, statement: str, where: str, says: str) -> None:
    run = stage.start(counting(tools, 3))
    everything(stage)
    second, third = successors(run)
    named = {"first": run.pk, "second": second.pk, "third": third.pk, "other": uuid4()}
    if "came_from = %(first)s" in statement:
        tamper("UPDATE runs_run SET came_from = NULL WHERE id = %s", second.pk)
    with without_triggers() as cursor:
        cursor.execute(statement, named)
    found = problems(Run(pk=named[where]))
    assert any(says in one for one in found), found


def test_one_whose_origin_was_forgotten_goes_on_and_says_so(stage: Stage, tools: Toolbox) -> None:
    """The database's owner may delete a run; its continuation needs nothing of it."""
    agent = counting(tools, 3, name="helper")
    run = stage.start(parent_of(agent, "a"))
    stage.drive(), stage.drive(), stage.drive()
    child, second, third = children(run)
    for table, column in (
        ("runs_signal", "run_id"),
        ("runs_checkpoint", "run_id"),
        ("ledger_ledgerentry", "run_id"),
        ("ledger_event", "run_id"),
        ("ledger_head", "run_id"),
        ("runs_run", "id"),
    ):
        tamper(f"DELETE FROM {table} WHERE {column} = %s", second.pk)
    everything(stage)
    assert output(run) == ["order:t0,order:t1,order:t2"]
    assert any(f"that it continues, {second.pk}, is missing" in one for one in problems(third))
    assert any(f"that continues it, {second.pk}, is missing" in one for one in problems(child))
    assert continuation.newest(child.pk).pk == third.pk, "the first leads to the newest"
