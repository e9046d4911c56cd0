from __future__ import annotations

import json

import pytest
from django.db import connection

from durableagents import Context, End
from ledger import events as e
from ledger.append import append
from runs.engine.agents import Agent
from runs.models import Checkpoint, Run
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.situations import act
from tests.integration.runs.stage import Stage, events, fresh, kinds, now, output, waiting
from tests.tampering import tamper
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of


def three_visits(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> str | End:
        n = len(state.seen)
        drawn = str(await ctx.uuid())
        done = await ctx.call(tools.order, Item(name=f"order {n}"))
        await ctx.call(tools.look, Item(name=f"look {n}"))
        if n == 2:
            await ctx.sleep(3600)
        state.seen.append([done.ref, drawn])
        return End(state.seen) if n == 2 else "node"

    return agent_of(node, tools=tools.all())


@pytest.fixture
def asleep(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(three_visits(tools))
    assert stage.drive() == "parked"
    assert Checkpoint.objects.filter(run_id=run.id).count() == 3
    return run


def wake_up(run: Run) -> None:
    run.waits.filter(kind="timer", resolved_at=None).update(deadline=now())
    from runs.workers import timers

    timers.sweep()


DAMAGES = [
    "state = '\\x007b7d'::bytea",
    "checksum = sha256('x')",
    "node = 'elsewhere'",
    "visit = 7",
    "state = ''::bytea",
]


@pytest.mark.every(3)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("how_many", [1, 2])
def test_damaged_checkpoint_falls_back(stage: Stage, outside: Outside, asleep: Run, damage: str, how_many: int) -> None:
    """The visits after it are replayed from their events: nothing is resent or drawn again."""
    sent = len(outside.requests)
    newest = list(Checkpoint.objects.filter(run_id=asleep.id).order_by("-seq").values_list("seq", flat=True)[:how_many])
    assert (
        tamper(f"UPDATE runs_checkpoint SET {damage} WHERE run_id = %s AND seq = ANY(%s)", asleep.id, newest)
        == how_many
    )
    wake_up(asleep)
    assert stage.drive() == "completed"
    assert len(outside.requests) == sent
    drawn = [x.payload for x in events(asleep, e.ValueRead)]
    assert [value for _, value in output(asleep)] == drawn and len(drawn) == 3
    assert len(events(asleep, e.VisitEntered)) == 3
    assert sorted(x.at for x in events(asleep, e.CheckpointSkipped)) == sorted(newest), "each once, on the record"
    check_against_journal(asleep, damaged="the checkpoint at event")


def test_without_any_sound_checkpoint_nothing_executes(stage: Stage, outside: Outside, asleep: Run) -> None:
    tamper("UPDATE runs_checkpoint SET checksum = sha256('x') WHERE run_id = %s", asleep.id)
    sent = len(outside.requests)
    wake_up(asleep)
    assert stage.drive() == "operator" and len(outside.requests) == sent
    (found,) = events(asleep, e.OperatorNeeded)
    assert found.reason == "broken_journal" and "checksum" in found.payload["problem"]


BREAKS = {
    "an event changed": "UPDATE ledger_event SET sealed = '\\x0031'::bytea WHERE run_id = %s AND seq = {last}",
    "an event's time changed": "UPDATE ledger_event SET at = at - interval '1 second' WHERE run_id = %s AND seq = "
    "{last}",
    "under which lease an event was written changed": "UPDATE ledger_event SET epoch = epoch + 1 WHERE run_id = %s "
    "AND seq = {last}",
    "an event's columns changed": "UPDATE ledger_event SET slot = '0.3/9' WHERE run_id = %s AND seq = {last}",
    "an event's fact changed": "UPDATE ledger_event SET fact = 'other' WHERE run_id = %s AND seq = {last}",
    "an event of an unknown kind": "UPDATE ledger_event SET kind = 'RunDreamed' WHERE run_id = %s AND seq = {last}",
    "an event gone": "DELETE FROM ledger_event WHERE run_id = %s AND seq = {last}",
    "an event gone in between": "DELETE FROM ledger_event WHERE run_id = %s AND seq = {last} - 2",
    "the end gone": "DELETE FROM ledger_event WHERE run_id = %s AND seq > {last}",
    "the beginning gone": "DELETE FROM ledger_event WHERE run_id = %s AND seq = 1",
}


@pytest.mark.parametrize("what", BREAKS)
def test_untrusted_journal_stops_before_any_call(stage: Stage, outside: Outside, asleep: Run, what: str) -> None:
    wake_up(asleep)
    (claimed,) = stage.claim()
    (last,) = (n for n, kind in enumerate(kinds(asleep), start=1) if kind == "WaitOpened")
    assert tamper(BREAKS[what].format(last=last), asleep.id) >= 1
    sent = len(outside.requests)
    assert stage.drive_claimed(claimed) == "operator", what
    assert len(outside.requests) == sent
    assert (str(fresh(asleep).state), [w.kind for w in waiting(asleep)]) == ("waiting_human", ["operator"])
    act("cancel", asleep)
    assert str(fresh(asleep).state) == "cancelled", "and it can be ended"


def test_an_operator_can_look_and_let_a_repaired_journal_go_on(stage: Stage, asleep: Run) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq, sealed FROM ledger_event WHERE run_id = %s AND kind = 'WaitOpened'", [asleep.id])
        seq, sealed = cursor.fetchone()
    tamper("UPDATE ledger_event SET sealed = '\\x0031'::bytea WHERE run_id = %s AND seq = %s", asleep.id, seq)
    wake_up(asleep)
    assert stage.drive() == "operator"
    tamper("UPDATE ledger_event SET sealed = %s WHERE run_id = %s AND seq = %s", sealed, asleep.id, seq)
    act("retry", asleep)
    assert stage.drive() == "completed"


@pytest.fixture
def newer(asleep: Run) -> type[e.Event]:
    class CallInspected(e.Event):
        by: str

    append(asleep.id, CallInspected(slot="0.1/1", by="hook"), by=OLGA)
    return e.KINDS.pop("CallInspected")


def test_a_kind_that_this_version_lacks_stops_the_run_until_one_drives_it_that_has_it(
    stage: Stage, asleep: Run, outside: Outside, newer: type[e.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = len(outside.requests)
    wake_up(asleep)
    assert stage.drive() == "operator" and len(outside.requests) == sent
    monkeypatch.setitem(e.KINDS, "CallInspected", newer)
    (stop,) = events(asleep, e.OperatorNeeded)
    assert stop.reason == "broken_journal" and "CallInspected" in stop.payload["problem"]
    act("retry", asleep)
    assert stage.drive() == "completed" and len(outside.requests) == sent


def test_cancel_ends_a_run_of_unknown_kinds(asleep: Run, newer: type[e.Event], monkeypatch: pytest.MonkeyPatch) -> None:
    act("cancel", asleep)
    monkeypatch.setitem(e.KINDS, "CallInspected", newer)
    (end,) = events(asleep, e.RunCancelled)
    assert str(fresh(asleep).state) == "cancelled" and "CallInspected" in end.in_flight[0]


def test_a_checkpoint_is_plain_json_and_says_where_it_belongs(asleep: Run) -> None:
    from ledger.codec import unpack

    rows = Checkpoint.objects.filter(run_id=asleep.id).order_by("seq")
    assert [(row.node, row.visit) for row in rows] == [("node", 1), ("node", 2), ("node", 3)]
    for row in rows:
        assert len(unpack(row.state)["seen"]) == row.visit - 1
        assert json.loads(json.dumps(unpack(row.state))) == unpack(row.state)
    entered = [n for n, kind in enumerate(kinds(asleep), start=1) if kind == "VisitEntered"]
    assert [row.seq for row in rows] == entered, "in the commit that enters the visit"
