from __future__ import annotations

import os
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from durableagents import Context, End
from ledger import events as e
from ledger.clock import database_now
from ledger.errors import Forbidden, IllegalTransition, JustificationRequired, NotFound, StaleLease
from ledger.models import ActRecord
from runs.engine.agents import Agent
from runs.models import Incident, Process, Run
from runs.services import authority, fleet, lifecycle, signals
from runs.services.fleet import requeue
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once, dump, events, fresh, head, kinds, output, overrides, problems
from tests.world import FIONA, OLGA, SHOP, Item, Notes, Toolbox, agent_of
from tests.writing import record

WHY = "Its worker has said nothing for ten minutes."


def buys(tools: Toolbox, name: str = "order") -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.call(getattr(tools, name), Item(name="steel", amount=7))
        return End(done.amount)

    return agent_of(node, tools=tools.all())


def given(run: Run, *, by: Any = OLGA, why: str = WHY) -> Run:
    return requeue(run.id, by=by, justification=why)


def test_its_worker_writes_no_more_and_the_next_one_goes_on(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buys(tools))
    stuck = stage.take(run)
    before = head(run)
    given(run)
    assert kinds(run)[-2:] == ["RunRequeued", "WorkerLost"]
    (found,), (lost,) = events(run, e.RunRequeued), events(run, e.WorkerLost)
    assert (found.by, found.role, found.worker) == ("user:olga", "operator", str(stage.worker.id))
    assert (lost.cause, lost.is_counted, lost.epoch, lost.deaths) == ("requeued", False, before.epoch, 0)
    assert (fresh(run).owner, head(run).lease) == (None, None) and fresh(run).ready_at is not None
    with pytest.raises(StaleLease):
        stage.wait(record(stuck, [e.ValueRead(slot="0.1/1", what="now", payload=1)]))
    (act,) = overrides(run)
    assert (act.action, act.seq, act.justification) == ("requeue", before.seq, WHY)
    assert act.before["worker"] == str(stage.worker.id) and act.before["is_owned"] and not act.after["is_owned"]
    (incident,) = Incident.objects.all()
    assert (incident.cause, incident.seq) == ("requeued", before.seq + 2)
    assert stage.drive(stage.hire()) == "completed" and output(run) == 7
    assert len(tools.outside.seen("order")) == 1
    check_against_journal(run)


@pytest.mark.parametrize("name", ["order", "mail"])
def test_a_call_that_was_under_way_is_never_made_twice(stage: Stage, tools: Toolbox, name: str) -> None:
    """It is taken away while its worker waits for the answer, which is handed in later."""
    run = stage.start(buys(tools, name))

    def taken(call: Any) -> None:
        assert isinstance(at_once(partial(given, run))[0], Run)

    tools.outside.trouble(name, taken, when="after")
    with pytest.raises(StaleLease):
        stage.drive()
    again = stage.hire()
    if name == "order":
        assert stage.drive(again) == "completed"
        assert len(tools.outside.executed(name)) == 1 and len({x.key for x in tools.outside.seen(name)}) == 1
    else:
        assert stage.drive(again) == "parked" and fresh(run).state == "waiting_human"
        assert len(tools.outside.seen(name)) == 1
        with pytest.raises(IllegalTransition, match="still alive and may still be sending"):
            stage.reconcile(run, "did_not")
    check_against_journal(run)


def test_one_that_waits_for_its_next_try_is_taken_now(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buys(tools))
    Run.objects.filter(pk=run.pk).update(ready_at=database_now() + timedelta(minutes=5))
    assert stage.drive() == "idle"
    given(run)
    assert kinds(run)[-1] == "RunRequeued" and not Incident.objects.exists()
    with pytest.raises(IllegalTransition, match="is already ready"):
        given(run)
    # Its retry delay is over: it needs nobody.
    now = database_now()
    Run.objects.filter(pk=run.pk).update(updated_at=now - timedelta(minutes=1), ready_at=now - timedelta(seconds=1))
    with pytest.raises(IllegalTransition, match="is already ready"):
        given(run)
    assert stage.drive() == "completed"
    check_against_journal(run)


def test_what_waits_or_is_over_is_left_alone(stage: Stage, tools: Toolbox) -> None:
    async def waits(state: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        return End(1)

    run = stage.start(agent_of(waits))
    stage.drive()
    before = dump()
    with pytest.raises(IllegalTransition, match="is waiting or paused"):
        given(run)
    with pytest.raises(NotFound):
        requeue(uuid4(), by=OLGA, justification=WHY)
    assert dump() == before
    signals.signal(run.id, "go", by=SHOP)
    stage.drive()
    with pytest.raises(IllegalTransition, match="The run has ended"):
        given(run)


@pytest.mark.parametrize("who", [FIONA, SHOP])
def test_only_operators_do_and_with_a_reason(stage: Stage, tools: Toolbox, who: Any) -> None:
    run = stage.start(buys(tools))
    stage.take(run)
    before = dump()
    with pytest.raises(Forbidden, match="Only an operator may requeue"):
        given(run, by=who)
    with pytest.raises(JustificationRequired):
        given(run, why=" ")
    assert dump() == before
    given(run)
    assert authority.own_act(fresh(run), None, "olga") is None, "it has put nothing into the run"


def test_of_several_at_once_one_takes_it(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buys(tools))
    stage.take(run)
    answers = at_once(*[partial(given, run)] * 6)
    assert sum(isinstance(answer, Run) for answer in answers) == 1
    assert kinds(run).count("RunRequeued") == kinds(run).count("WorkerLost") == 1
    check_against_journal(run)


def test_a_pause_that_was_asked_for_holds_with_anyone_who_takes_it(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buys(tools))
    stage.take(run)
    lifecycle.pause(run.id, by=OLGA, justification=WHY)
    given(run)
    assert stage.drive(stage.hire()) == "paused" and tools.outside.seen("order") == []
    assert problems(run) == []


# --- workers and hosts ------------------------------------------------------------------------------------------------


def test_a_worker_is_asked_once_to_let_go_and_that_is_on_record(stage: Stage) -> None:
    worker = stage.worker.id
    for who in (FIONA, SHOP):
        with pytest.raises(Forbidden, match="Only an operator may drain"):
            fleet.drain(worker, by=who, justification=WHY)
    with pytest.raises(JustificationRequired):
        fleet.drain(worker, by=OLGA, justification="")
    with pytest.raises(NotFound):
        fleet.drain(uuid4(), by=OLGA, justification=WHY)
    assert not ActRecord.objects.exists()
    assert fleet.drain(worker, by=OLGA, justification=WHY).drain_asked_at is not None
    (record,) = ActRecord.objects.all()
    assert (record.action, record.by, record.justification) == ("drain", "user:olga", WHY)
    assert record.before["processes"][0]["id"] == str(worker)
    with pytest.raises(fleet.NotToDrain, match="already"):
        fleet.drain(worker, by=OLGA, justification=WHY)
    Process.objects.filter(pk=worker).update(kind="web", drain_asked_at=None)
    with pytest.raises(fleet.NotToDrain, match="executes no runs"):
        fleet.drain(worker, by=OLGA, justification=WHY)


def test_its_next_beat_tells_it(stage: Stage) -> None:
    import psycopg

    from runs.connections import dsn
    from runs.fleet import members

    identity = members.identify(os.getpid())
    assert identity is not None
    sign = members.Sign("worker", identity)
    with psycopg.connect(dsn(name="durableagents presence"), autocommit=True) as link:
        assert members.beat_anchored(link, sign) == members.Heard(is_buried=False)
        fleet.drain(members.incarnation_id(identity), by=OLGA, justification=WHY)
        assert members.beat_anchored(link, sign) == members.Heard(is_buried=False, is_drain_asked=True)
        members.bury(members.incarnation_id(identity), cause="operator", proof="said so")
        assert members.beat_anchored(link, sign).is_buried
    members.hang_up()


def test_only_operators_declare_a_host_dead(stage: Stage) -> None:
    silent = database_now() - timedelta(minutes=5)
    Process.objects.filter(pk=stage.worker.id).update(host="lost.example", last_heartbeat_at=silent)
    with pytest.raises(Forbidden, match="Only an operator may declare"):
        fleet.declare_dead("lost.example", by=FIONA, justification=WHY)
    assert fleet.declare_dead("lost.example", by=OLGA, justification=WHY) == 1
    (record,) = ActRecord.objects.all()
    assert (record.action, record.subject, record.by) == ("declare_dead", "lost.example", "user:olga")
    Process.objects.filter(pk=stage.worker.id).update(ended_at=None, end_cause="", last_heartbeat_at=database_now())
    with pytest.raises(fleet.ShowsLife, match="Stop them first"):
        fleet.declare_dead("lost.example", by=OLGA, justification=WHY)
