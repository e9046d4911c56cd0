from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection

from durableagents import Context, End
from ledger import events as e
from ledger.models import Head
from ledger.verification.runs import verify, verify_all
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import lifecycle
from runs.workers import failover, timers
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, events, fresh, kinds, now, output, waiting
from tests.tampering import tamper
from tests.waiting import eventually
from tests.world import OLGA, Item, Notes, Toolbox, agent_of

Damage = Callable[[Run], None]


def buying_twice(tools: Toolbox) -> Agent:
    async def first(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.order, Item(name="a"))
        await ctx.sleep(0)
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.order, Item(name="b"))).ref)

    return agent_of(first, second, tools=tools.all())


def by_hand(statement: str, run: Run, *values: Any) -> None:
    """Run SQL without triggers, as a superuser can."""
    tamper(statement, *values, run.id)


def out_of_range(what: str) -> Damage:
    """Return damage that a constraint refuses; the constraint holds again for later writes."""

    def damage(run: Run) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'ledger_head_in_range'")
            (check,) = cursor.fetchone()
            cursor.execute("ALTER TABLE ledger_head DROP CONSTRAINT ledger_head_in_range")
        by_hand(f"UPDATE ledger_head SET {what} WHERE run_id = %s", run)
        with connection.cursor() as cursor:
            check = check.removesuffix(" NOT VALID")
            cursor.execute(f"ALTER TABLE ledger_head ADD CONSTRAINT ledger_head_in_range {check} NOT VALID")

    return damage


def changed(table: str, what: str, *, more: str = "", key: str = "run_id") -> Damage:
    verb = f"UPDATE {table} SET {what}" if what else f"DELETE FROM {table}"
    return lambda run: by_hand(f"{verb} WHERE {key} = %s {more}", run)


DAMAGES: dict[str, Damage] = {
    "a side effect's row gone": changed("ledger_ledgerentry", ""),
    "the head's seq set back": changed("ledger_head", "seq = seq - 1"),
    "the head's seq set forward": changed("ledger_head", "seq = seq + 1"),
    "the head gone": changed("ledger_head", ""),
    "the head's link wrong": changed("ledger_head", "chain = sha256('x')"),
    "the head's epoch below nothing": out_of_range("epoch = -5"),
    "the head's epoch and seq below nothing": out_of_range("epoch = -2, seq = -7, claimed_seq = -9"),
    "the head's epoch at its end": changed("ledger_head", "epoch = 9223372036854775807"),
    "an event's bytes changed": changed("ledger_event", "clear = '{}'", more="AND seq = 3"),
    "the last event gone": changed(
        "ledger_event", "", more="AND seq = (SELECT seq FROM ledger_head h WHERE h.run_id = ledger_event.run_id)"
    ),
    "the first event gone": changed("ledger_event", "", more="AND seq = 1"),
    "no event left": changed("ledger_event", ""),
    "a checkpoint's state changed": changed("runs_checkpoint", "state = 'x'"),
    "the wait resolved behind the journal's back": changed(
        "runs_wait", "resolution = 'fired', resolved_at = clock_timestamp()"
    ),
    "a side effect's row too many": lambda run: by_hand(
        "INSERT INTO ledger_ledgerentry (run_id, seq, slot, attempt, fact, tool, replay_class, actor, at) "
        "SELECT run_id, 99, '0.2/1', 0, 'pending', 'order', 'idempotent_with_key', 'nobody', "
        "clock_timestamp() FROM ledger_head WHERE run_id = %s",
        run,
    ),
}
# Nothing depends on it, and it is never read again.
MENDED = {"a side effect's row gone"}


@pytest.fixture(autouse=True)
def _constraint_is_believed_again(stage: Stage) -> Iterator[None]:
    yield
    by_superuser = (
        "DELETE FROM ledger_head WHERE epoch < 0; ALTER TABLE ledger_head VALIDATE CONSTRAINT ledger_head_in_range"
    )
    tamper(by_superuser)


@pytest.mark.parametrize("column", ["epoch", "seq", "claimed_seq", "deaths"])
def test_no_head_is_brought_below_nothing(stage: Stage, tools: Toolbox, column: str) -> None:
    run = stage.start(buying_twice(tools))
    with pytest.raises(IntegrityError, match="ledger_head_in_range"):
        Head.objects.filter(pk=run.id).update(**{column: -1})


def operators(run: Run) -> list[Wait]:
    return [wait for wait in waiting(run) if wait.kind == "operator"]


@pytest.mark.every(3)
@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_run_keeps_no_other_from_being_driven(stage: Stage, tools: Toolbox, what: str) -> None:
    agent = buying_twice(tools)
    bad = stage.start(agent)
    assert stage.drive() == "parked"
    DAMAGES[what](bad)
    Run.objects.filter(pk=bad.pk).update(state="running", ready_at=now() - timedelta(hours=1))
    healthy = [stage.start(agent) for _ in range(5)]
    with working(stage) as host:
        for run in healthy:
            eventually(lambda: str(fresh(run).state) == "completed", what=f"{what}: a healthy run's end", seconds=60)  # noqa: B023
        eventually(
            lambda: operators(bad) or str(fresh(bad).state) == "completed",
            what=f"{what}: what becomes of the damaged run",
            seconds=60,
        )
        assert host._drain_at is None
    for run in healthy:
        assert output(run) == "order:b" and verify(run.id).problems == []
    if what in MENDED:
        assert str(fresh(bad).state) == "completed", [events(bad, e.OperatorNeeded), kinds(bad)]
    else:
        (stop,) = operators(bad)
        assert stop.detail["title"] == "Needs an operator" and stop.deadline > now()
        left = fresh(bad)
        assert (str(left.state), left.owner, left.ready_at) == ("waiting_human", None, None)


def test_what_could_not_be_journaled_goes_on_once_its_rows_are_mended(stage: Stage, tools: Toolbox) -> None:
    bad = stage.start(buying_twice(tools))
    assert stage.drive() == "parked"
    before = kinds(bad)
    DAMAGES["the head's seq set back"](bad)
    Run.objects.filter(pk=bad.pk).update(state="running", ready_at=now())
    assert failover.stop(bad.id, None, "the database said no") is True
    (stop,) = operators(bad)
    assert (stop.detail["reason"], stop.detail["problem"]) == ("damaged_journal", "the database said no")
    assert kinds(bad) == before, "its journal took no event"
    assert failover.stop(bad.id, None, "again") is False and len(operators(bad)) == 1
    changed("ledger_head", "seq = seq + 1")(bad)
    Wait.objects.filter(run=bad, kind="timer").update(deadline=now())
    timers.sweep()
    assert stage.drive() == "idle", "nobody has looked yet"
    lifecycle.retry(bad.id, by=OLGA, justification="the row is mended")
    assert stage.drive() == "completed" and output(bad) == "order:b"
    found = verify(bad.id)
    assert [
        problem for problem in found.problems if not problem.startswith("the wait for timer at")
    ] == []  # moved by this test
    (note,) = found.notes
    assert f"repaired, with the record: {Wait.objects.get(pk=stop.pk).resolution} by {OLGA.ref}, event " in note
    # The record covers one stop, ended so: what is changed later, or added, is a problem again.
    changes: list[dict[str, Any]] = [
        {"resolved_by": "user:eve"},
        {"resolution": "cancelled"},
        {"resolved_at": now() + timedelta(hours=1)},
        {"resolution": None, "resolved_by": None, "resolved_at": None},
        {"slot": "operator/damaged.1"},
        {"grant_hash": b"x" * 32},
    ]
    for change in changes:
        before_it = Wait.objects.filter(pk=stop.pk).values(*change).get()
        Wait.objects.filter(pk=stop.pk).update(**change)
        again = verify(bad.id)
        assert [problem for problem in again.problems if problem.startswith("the wait for operator at")], change
        assert again.notes == [], change
        Wait.objects.filter(pk=stop.pk).update(**before_it)
    assert verify(bad.id).notes == [note]


def test_a_run_whose_wait_is_gone_is_found_and_shown(stage: Stage, tools: Toolbox) -> None:
    """Nothing would ever wake it, and no sweep looks at it."""
    agent = buying_twice(tools)
    bad, good = stage.start(agent), stage.start(agent)
    assert [stage.drive(), stage.drive()] == ["parked", "parked"]
    changed("runs_wait", "")(bad)
    Run.objects.update(updated_at=now() - timedelta(hours=1))
    assert timers.show_who_waits_for_nothing() == 1
    (stop,) = operators(bad)
    assert "waits for nothing" in stop.detail["problem"] and operators(good) == []
    assert timers.show_who_waits_for_nothing() == 0, "once"


def test_a_dead_workers_damaged_run_is_not_tried_forever(stage: Stage, tools: Toolbox) -> None:
    agent = buying_twice(tools)
    bad, good = stage.start(agent), stage.start(agent)
    worker = stage.hire(is_dead=True)
    assert len(stage.claim(worker, limit=2)) == 2
    DAMAGES["the head's seq set back"](bad)
    assert failover.watch() == 1 and fresh(good).owner is None
    for _ in range(failover.MAX_FAILURES):
        failover.watch()
    assert fresh(bad).owner is None and len(operators(bad)) == 1
    assert Head.objects.get(run_id=bad.id).lease is None, "its worker is fenced off"
    assert stage.drive() == "parked", "the healthy one"


def test_a_driven_run_that_is_damaged_meanwhile_is_let_go_of(stage: Stage, tools: Toolbox) -> None:
    agent = buying_twice(tools)
    bad = stage.start(agent)
    stage.claim()  # the answer was lost: the worker owns it without driving it
    DAMAGES["the head's seq set back"](bad)
    good = stage.start(agent)
    with working(stage):
        eventually(lambda: str(fresh(good).state) == "completed", what="the healthy run's end", seconds=60)
        eventually(lambda: operators(bad), what="the damaged one being stopped", seconds=60)
    assert fresh(bad).owner is None


@pytest.mark.parametrize("what", ["the head's seq set back", "the head gone", "the head's link wrong"])
def test_damaged_deadline_delays_none(stage: Stage, tools: Toolbox, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "TROUBLED_SECONDS", 0.0)
    agent = buying_twice(tools)
    runs = [stage.start(agent) for _ in range(4)]
    while stage.drive() != "idle":
        pass
    bad, *good = runs
    Wait.objects.filter(run=bad).update(deadline=now() - timedelta(days=1))
    Wait.objects.filter(run__in=good).update(deadline=now())
    DAMAGES[what](bad)
    for _ in range(timers.MAX_TROUBLES):
        assert timers.sweep() >= 0
    for run in good:
        assert events(run, e.WaitResolved)[0].resolution == "fired" and str(fresh(run).state) == "running"
    if what != "the head's link wrong":  # found only by reading the journal
        assert len(operators(bad)) == 1 and str(fresh(bad).state) == "waiting_event"


def test_events_forged_far_ahead_take_no_memory_and_no_verification_from_others(stage: Stage, tools: Toolbox) -> None:
    agent = buying_twice(tools)
    bad, sound = stage.start(agent), stage.start(agent)
    count, last = 10**6, len(kinds(bad))
    for n in range(1, 6):
        by_hand(
            "INSERT INTO ledger_event (run_id, seq, epoch, at, kind, attempt, clear, prev_hash, hash) "
            f"SELECT run_id, seq + {n * count}, epoch, at, kind, attempt, clear, prev_hash, hash FROM ledger_event "
            f"WHERE run_id = %s AND seq = {last}",
            bad,
        )
    found = {each.run_id: each for each in verify_all()}
    assert found[sound.id].problems == [] and found[bad.id].events == last + count
    for n in range(5):
        missing = last + n * count + 1
        text = f"event {missing} is missing: the next one found is {missing + count - 1}"
        assert text in found[bad.id].problems


def test_a_right_that_the_worker_lacks_is_held_against_no_run(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(buying_twice(tools))
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION runs_take RENAME TO runs_take_away")
        try:
            with pytest.raises(Exception, match="runs_take"):
                stage.claim()
        finally:
            cursor.execute("ALTER FUNCTION runs_take_away RENAME TO runs_take")
    assert operators(run) == [] and fresh(run).ready_at is not None
    assert stage.drive() == "parked"


def test_a_lock_that_takes_too_long_is_held_against_no_run(stage: Stage, tools: Toolbox) -> None:
    import psycopg

    from runs.connections import dsn

    agent = buying_twice(tools)
    held, free = stage.start(agent), stage.start(agent)
    with psycopg.connect(dsn(name="a person")) as person:
        person.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [held.id])
        assert [one.run_id for one in stage.claim(limit=2)] == [free.id]
    assert [one.run_id for one in stage.claim(limit=2)] == [held.id]
