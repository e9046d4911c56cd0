from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from durableagents import Context, End
from ledger import events as e
from ledger.append import append
from ledger.errors import StaleLease
from ledger.models import LedgerEntry
from ledger.verification.runs import verify
from runs.connections import dsn
from runs.engine.agents import registry
from runs.engine.driver import Driver
from runs.engine.journal import Entry, Usage, WaitSpec
from runs.engine.runtime import Control
from runs.journal.claims import Claim, claim
from runs.journal.database_errors import is_transient
from runs.models import Run, Wait
from runs.workers import timers
from tests.cases import each_case
from tests.integration.runs.stage import Stage, events, facts, fresh, head, in_thread, kinds, now, output, problems
from tests.integration.runs.test_steering import check_form
from tests.integration.runs.wire import LossyWire, counted
from tests.tiers import many
from tests.world import OLGA, Item, Notes, Outside, Toolbox, agent_of, ends_with
from tests.writing import intend, record

LOSSES: list[Any] = ["question", "answer"]
EVERY = many(1, 5)  # which of the statements is lost


def everything(tools: Toolbox) -> Any:
    async def first(state: Notes, ctx: Context) -> str:
        state.seen.append((await ctx.call(tools.order, Item(name="a"))).ref)
        state.seen.append((await ctx.call(tools.look, Item(name="b"))).ref)
        await ctx.uuid()
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        state.seen.append((await ctx.call(tools.mail, Item(name="c"))).ref)
        state.seen.append((await ctx.call(tools.wire, Item(name="d", amount=5000))).ref)
        await ctx.sleep(0)
        return End(state.seen)

    return agent_of(first, second, tools=tools.all())


def play(stage: Stage, run: Run) -> None:
    for _ in range(60):
        stage.drive()
        if str(fresh(run).state) in ("completed", "failed"):
            return
        if run.approvals.filter(state="open").exists():
            stage.decide(run)
        Wait.objects.filter(run=run, kind="timer", resolved_at=None).update(deadline=now())
        timers.sweep()
    raise AssertionError("it never ends")


# A loss around the claim itself leaves the run with a worker that doesn't know it: tests/system/fleet tests that with a
# real host.
@pytest.mark.parametrize("what", LOSSES)
def test_any_lost_commit_is_survived(
    stage: Stage, tools: Toolbox, outside: Outside, wire: LossyWire, what: Any
) -> None:
    agent = everything(tools)
    whole = stage.start(agent)
    statements = counted(wire, lambda: play(stage, whole))
    expected = [r.tool for r in outside.requests]
    assert expected == ["order", "look", "mail", "wire"] and statements > 15
    nth = 0
    for nth in range(1, statements + 1, EVERY):
        outside.requests.clear()
        run = stage.start(agent)
        wire.lose((nth, what))
        try:
            play(stage, run)
        except psycopg.OperationalError:  # lost around a claim: nobody drives it until its worker checks its own runs
            Run.objects.filter(pk=run.pk, owner__isnull=False).update(owner=None, ready_at=now())
            play(stage, run)
        if not wire.has_lost:
            break  # the first run also prepared its statements: there are fewer to lose now
        assert str(fresh(run).state) == "completed", (nth, what)
        assert [r.tool for r in outside.requests] == expected, f"statement {nth}, lost {what}"
        assert output(run) == output(whole)
        assert facts(run) == ["pending", "committed"] * 3
        seen = [k for k in kinds(run) if k != "RunClaimed"]
        assert seen == [k for k in kinds(whole) if k != "RunClaimed"], f"statement {nth}, lost {what}"
        assert problems(run) == []
        check_form(run)
    assert nth > 25 - EVERY


@pytest.mark.parametrize("what", LOSSES)
def test_branches_survive_losses(stage: Stage, tools: Toolbox, outside: Outside, wire: LossyWire, what: Any) -> None:
    """The check claims the run again under a new lease, under which the other branches' commits continue."""

    async def node(state: Notes, ctx: Context) -> End:
        done = await ctx.gather(*(ctx.call(tool, Item(name="a")) for tool in (tools.order, tools.mail, tools.look)))
        return End([each.ref for each in done])

    agent = agent_of(node, tools=tools.all())
    whole = stage.start(agent)
    statements = counted(wire, lambda: stage.drive())
    for nth in range(2, statements + 1, EVERY):
        outside.requests.clear()
        run = stage.start(agent)
        wire.lose((nth, what))
        assert stage.drive() == "completed", (nth, what)
        if not wire.has_lost:
            break
        assert sorted(r.tool for r in outside.requests) == ["look", "mail", "order"], f"statement {nth}, lost {what}"
        assert output(run) == output(whole) and sorted(facts(run)) == ["committed"] * 2 + ["pending"] * 2
        assert problems(run) == []


# --- one commit at a time ---


@pytest.mark.parametrize("what", LOSSES)
@pytest.mark.parametrize("nth", [1, 4])
def test_lost_answer_fences_off_no_later_write(stage: Stage, wire: LossyWire, nth: int, what: Any) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    wire.lose((nth, what))

    async def at_once() -> None:
        await asyncio.gather(
            *(record(journal, [e.ValueRead(slot=f"0.1/{i}", what="now", payload=i)]) for i in range(8))
        )

    stage.wait(at_once())
    assert wire.has_lost and kinds(run).count("ValueRead") == 8 and kinds(run).count("RunClaimed") == 2
    assert verify(run.id, using=()).problems == []  # handwritten steps have no matching rows in other tables


def invoked(slot: str = "0.1/1") -> e.ToolInvoked:
    return e.ToolInvoked(
        slot=slot, tool="order", replay_class="idempotent_with_key", requested_hash="h", executed_hash="h"
    )


ENTRY = Entry("0.1/1", 0, "pending", "order", "idempotent_with_key", key="k")
WRITES: dict[str, Callable[[Any], Any]] = {
    "intend": lambda j: intend(j, [invoked()], entry=ENTRY),
    "record": lambda j: record(
        j, [e.ValueRead(slot="0.1/2", what="now", payload=1)], entries=[ENTRY], usage=Usage(steps=1)
    ),
    "end": lambda j: j.leave("end", [e.RunCompleted(payload=1)], state="completed"),
    "release": lambda j: j.leave("release", [e.RunReleased(reason="drain")], state="running"),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("what", LOSSES)
# A statement's first use is a separate round trip; an end, with several statements, is one all the same.
@pytest.mark.parametrize(
    ("write", "nth"),
    [(write, nth) for write in WRITES for nth in (1, 2) if (write, nth) != ("end", 2)],
    ids=lambda each: {1: "preparing", 2: "committing"}.get(each, each),
)
def test_lost_commit_is_there_once(stage: Stage, wire: LossyWire, write: str, nth: int, what: Any) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    rung: list[int] = []
    journal.on_write = lambda run_id, seq: rung.append(seq)
    append(run.id, e.SignalReceived(name="news", n=1, by="x"), by=OLGA)  # since the worker last read its journal
    wire.lose((nth, what))
    reply = stage.wait(WRITES[write](journal))
    assert wire.has_lost and reply.is_done
    assert rung == [reply.seq] == [head(run).seq], "watchers are told of the written event"
    written = {"intend": "ToolInvoked", "record": "ValueRead", "end": "RunCompleted", "release": "RunReleased"}[write]
    assert kinds(run).count(written) == 1
    assert LedgerEntry.objects.filter(run_id=run.id).count() == (write in ("intend", "record"))
    assert head(run).steps == (write == "record")
    assert verify(run.id, using=()).problems == []  # handwritten steps have no matching rows in other tables
    let_go = write in ("end", "release")
    assert (fresh(run).owner is None) is let_go
    if not let_go:
        assert events(run, e.RunClaimed)[-1].cause == "reconnected"
        stage.wait(record(journal, [e.ValueRead(slot="0.1/9", what="now", payload=2)]))


@pytest.mark.parametrize("what", LOSSES)
def test_a_loss_while_finding_out_is_found_out_too(stage: Stage, wire: LossyWire, what: Any) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    for nth in (1, 2):  # the new claim, the check of the journal
        wire.lose((2, "answer"), (nth, what))
        stage.wait(record(journal, [e.ValueRead(slot=f"0.1/{nth}", what="now", payload=nth)]))
        assert wire.has_lost and kinds(run).count("ValueRead") == nth
    assert verify(run.id, using=()).problems == []  # handwritten steps have no matching rows in other tables


def test_a_worker_that_lost_the_run_is_refused_and_writes_nothing(stage: Stage, wire: LossyWire) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    Run.objects.filter(pk=run.pk).update(owner=stage.hire().id)
    wire.lose((1, "question"))
    before = kinds(run)
    with pytest.raises(StaleLease):
        stage.wait(record(journal, [e.ValueRead(slot="0.1/1", what="now", payload=1)]))
    assert kinds(run) == before


def test_same_intent_by_another_worker_sends_nothing(stage: Stage, wire: LossyWire) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    Run.objects.filter(pk=run.pk).update(owner=None, ready_at=now())
    stage.wait(intend(stage.take(run, stage.hire()), [invoked()], entry=ENTRY))
    wire.lose((1, "question"))
    with pytest.raises(StaleLease):
        stage.wait(intend(journal, [invoked()], entry=ENTRY))
    assert wire.has_lost and kinds(run).count("ToolInvoked") == 1


def test_own_intent_sends_nothing_after_a_takeover(stage: Stage, wire: LossyWire) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal, other = stage.take(run), stage.hire()
    stage.wait(intend(journal, [invoked("0.1/0")], entry=replace(ENTRY, slot="0.1/0")))  # the statement is now prepared

    def take_over() -> None:
        while kinds(run).count("ToolInvoked") < 2:
            pass
        Run.objects.filter(pk=run.pk).update(owner=other.id)

    wire.lose((1, "answer"), *[(1, "question")] * 6)  # type: ignore[list-item]
    taking_over = threading.Thread(target=in_thread, args=(take_over,))
    taking_over.start()
    with pytest.raises(StaleLease):
        stage.wait(intend(journal, [invoked()], entry=ENTRY))
    taking_over.join()
    assert kinds(run).count("ToolInvoked") == 2


def test_a_refusal_is_still_a_refusal_after_its_answer_was_lost(stage: Stage, wire: LossyWire) -> None:
    """Nothing was written, so it is repeated and refused again: a cancelled run gets no intent by accident."""
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    question = head(run)
    question.is_cancel_requested = True
    question.save(update_fields=["is_cancel_requested"])
    wire.lose((2, "answer"))
    reply = stage.wait(intend(journal, [invoked()], entry=ENTRY))
    assert not reply.is_done and reply.stop == "cancel" and "ToolInvoked" not in kinds(run)


def test_wait_resolved_during_a_lost_park_is_noticed(stage: Stage, wire: LossyWire) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    wait = WaitSpec(journal.run_id, "0.1/1", 0, "timer", 0, now())
    opened = e.WaitOpened(slot="0.1/1", wait="timer", deadline="", n=0)
    stage.wait(record(journal, [opened], wait=wait))
    timers.sweep()
    wire.lose((1, "question"))
    parked = [e.RunParked(state="waiting_event", waits=["0.1/1"])]
    reply = stage.wait(journal.leave("park", parked, state="waiting_event", waits=[wait.id]))
    assert not reply.is_done and str(fresh(run).state) == "running" and "RunParked" not in kinds(run)


def test_worker_survives_a_terminated_backend(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """`pg_terminate_backend`, as in a failover or by an administrator, at every step."""
    run = stage.start(everything(tools))

    def terminate(point: str, tool: str) -> None:
        if point in ("CP1", "CP4", "CP7", "CP8"):
            with psycopg.connect(dsn(), autocommit=True) as link:
                link.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                    "current_database() AND application_name = 'durableagents stage'"
                )

    stage.at = terminate
    play(stage, run)
    assert [r.tool for r in outside.requests] == ["order", "look", "mail", "wire"]
    assert facts(run) == ["pending", "committed"] * 3 and problems(run) == []


def test_a_held_row_is_waited_for_and_not_mistaken_for_a_loss(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    journal = stage.take(run)
    with psycopg.connect(dsn()) as other:
        other.execute("SELECT 1 FROM ledger_head WHERE run_id = %s FOR UPDATE", [run.id])

        def until_somebody_waits() -> None:
            with psycopg.connect(dsn(), autocommit=True) as link:
                while link.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
                    pass

        async def write_while_held() -> Any:
            writing = asyncio.ensure_future(record(journal, [e.ValueRead(slot="0.1/1", what="now", payload=1)]))
            await asyncio.to_thread(until_somebody_waits)
            other.rollback()
            return await writing

        assert stage.wait(write_while_held()).is_done
    assert kinds(run).count("ValueRead") == 1


@each_case(
    ("error", "passes"),
    [
        (psycopg.OperationalError("gone"), True),
        (psycopg.InterfaceError("closed"), True),
        (psycopg.errors.SerializationFailure(), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.errors.LockNotAvailable(), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.UniqueViolation(), False),
        (psycopg.errors.UndefinedFunction(), False),
        (ValueError("x"), False),
    ],
)
def test_what_passes_by_itself_is_told_from_what_does_not(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes


def test_a_lost_farewell_does_not_take_the_run_from_the_same_workers_newer_claim(stage: Stage, tools: Toolbox) -> None:
    """The park committed and its answer was lost; when its worker checks, it has claimed the run again."""

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(0)
        return End((await ctx.call(tools.mail, Item(name="a"))).ref)

    run = stage.start(agent_of(node, tools=tools.all()))
    (first,) = stage.claim()
    journal = stage.journal(first)
    committer = journal._committer
    newer: list[Claim] = []

    def rings() -> None:
        Wait.objects.filter(run=run).update(deadline=now())
        timers.sweep()

    async def lossy(of: str, statement: str, values: list[Any], **how: Any) -> Any:
        reply = await committer.write(of, statement, values, **how)
        if "runs_park" in statement and not newer:
            in_thread(rings)
            newer.extend(await claim(await stage.connected(), stage.worker, [first.graph_id], 1))
            raise psycopg.OperationalError("the server closed the connection")
        return reply

    journal._committer = SimpleNamespace(write=lossy)  # type: ignore[assignment]
    driver = Driver(registry.find(first.graph_id), journal, stage.runtime, Control(), trace_id=first.trace_id)
    assert stage.wait(driver.drive()) == "parked"
    (claimed,) = newer
    assert head(run).epoch == claimed.epoch, "nobody took it away"
    assert stage.drive_claimed(claimed) == "completed" and output(run) == "mail:a"
    check_form(run)
