"""Steps of several runs share a round trip and a commit; each has its own fence, answer and refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from ledger import events as e
from ledger.errors import StaleLease
from ledger.models import LedgerEntry
from runs import failpoints
from runs.engine.errors import ApprovalMissing
from runs.engine.journal import Entry, Reply, Snapshot
from runs.journal import committer as committing
from runs.journal.committer import committer
from runs.journal.database_errors import StatementRefused
from runs.journal.postgres import PgJournal
from runs.models import Run
from tests import kept
from tests.integration.runs.company import (
    ENTRY,
    HEAD,
    RUN,
    beside_another,
    commits,
    crew,
    holding,
    invoked,
    is_sound,
    together,
    together_in_one,
    until_somebody_waits,
    value,
)
from tests.integration.runs.stage import Stage, head, kinds, now
from tests.integration.runs.test_refusals import refusing
from tests.integration.runs.wire import LossyWire, counted
from tests.writing import intend, record

pytestmark = pytest.mark.every(3)

# --- one commit ---


@together_in_one
def test_steps_of_several_runs_are_one_commit_and_each_has_its_own_answer(stage: Stage) -> None:
    runs, journals = crew(stage, 4)
    for number, journal in enumerate(journals):
        together(stage, *(record(journal, [value(i)]) for i in range(number)))  # so that no two are at the same event
    replies = together(stage, *(record(journal, [value(9)]) for journal in journals))
    assert [reply.seq for reply in replies] == [head(run).seq for run in runs] == [3, 4, 5, 6]
    assert [journal.seq for journal in journals] == [3, 4, 5, 6]
    assert commits(*runs) == 1 and is_sound(*runs)


# --- separate answers ---


def stale(stage: Stage, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(owner=None, ready_at=now())
    stage.take(run, stage.hire())


def asked(flag: str) -> Callable[[Stage, Run], None]:
    def ask(stage: Stage, run: Run) -> None:
        found = head(run)
        setattr(found, flag, True)
        found.save(update_fields=[flag])

    return ask


TROUBLES: dict[str, tuple[Callable[[Stage, Run], None], Callable[[Any], bool], dict[str, Any]]] = {
    "a stale lease": (stale, lambda answer: isinstance(answer, StaleLease) and "is at epoch 2" in str(answer), {}),
    "a pause": (asked("is_pause_requested"), lambda answer: answer.stop == "pause" and not answer.is_done, {}),
    "a cancel": (asked("is_cancel_requested"), lambda answer: answer.stop == "cancel" and not answer.is_done, {}),
    "a hold": (asked("is_on_hold"), lambda answer: answer.stop == "hold" and not answer.is_done, {}),
    "no approval": (
        lambda stage, run: None,
        lambda answer: isinstance(answer, ApprovalMissing) and "no unused approval" in str(answer),
        {"grant": ("0.1/1", "hash")},
    ),
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("trouble", TROUBLES)
@together_in_one
def test_what_stops_one_stops_none_of_its_neighbours(stage: Stage, trouble: str, place: int) -> None:
    bring_about, is_told, more = TROUBLES[trouble]
    runs, journals = crew(stage, 3)
    bring_about(stage, runs[place])
    answers = together(
        stage, *(intend(j, [invoked()], entry=ENTRY, **(more if i == place else {})) for i, j in enumerate(journals))
    )
    assert is_told(answers.pop(place)), answers
    stopped = runs.pop(place)
    assert all(answer.is_done and answer.stop is None for answer in answers)
    assert [answer.seq for answer in answers] == [head(run).seq for run in runs] == [3, 3]
    assert all(kinds(run)[-1] == "ToolInvoked" for run in runs) and "ToolInvoked" not in kinds(stopped)
    assert list(LedgerEntry.objects.values_list("run_id", flat=True).order_by("run_id")) == sorted(r.id for r in runs)
    assert [head(run).epoch for run in runs] == [1, 1], "nobody had to find anything out"
    assert is_sound(*runs, stopped)


@pytest.mark.parametrize("code", ["22000", "57014"])
@together_in_one
def test_what_the_server_refuses_to_one_it_refuses_to_none_of_its_neighbours(stage: Stage, code: str) -> None:
    runs, journals = crew(stage, 3)
    with refusing(code, "BranchesOpened"):
        first, refused, last = together(
            stage,
            record(journals[0], [value()]),
            record(journals[1], [e.BranchesOpened(slot="0.1/1", branches=2)]),
            record(journals[2], [value()]),
        )
    assert isinstance(refused, psycopg.DataError if code == "22000" else StatementRefused)
    assert (first.seq, last.seq) == (3, 3) and kinds(runs[1])[-1] == "RunClaimed"
    assert is_sound(*runs) and [head(run).epoch for run in runs] == [1, 1, 1]


@together_in_one
def test_what_the_server_refuses_at_the_commit_is_refused_to_whom_it_concerns(stage: Stage) -> None:
    """A deferred constraint fails after all statements have been answered."""
    runs, journals = crew(stage, 3)
    with refusing("22000", "BranchesOpened"), connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refuse ON ledger_event")
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON ledger_event DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        first, refused, last = together(
            stage,
            record(journals[0], [value()]),
            record(journals[1], [e.BranchesOpened(slot="0.1/1", branches=2)]),
            record(journals[2], [value()]),
        )
    assert isinstance(refused, psycopg.DataError) and (first.seq, last.seq) == (3, 3)
    assert [kinds(run).count("ValueRead") for run in runs] == [1, 0, 1] and is_sound(*runs)


@together_in_one
def test_a_head_that_somebody_holds_keeps_none_of_the_neighbours_waiting(stage: Stage) -> None:
    runs, journals = crew(stage, 3)

    async def write_while_held(other: psycopg.Connection[Any]) -> Reply:
        held, *others = (asyncio.ensure_future(record(journal, [value()])) for journal in journals)
        assert [(await each).seq for each in others] == [3, 3]
        await until_somebody_waits()
        assert not held.done()
        other.rollback()
        return await held

    with holding(HEAD, runs[0].id) as other:
        assert stage.wait(write_while_held(other)).seq == 3
    assert commits(*runs[1:]) == 1 and commits(*runs) == 2 and is_sound(*runs)


@together_in_one
def test_held_heads_take_nobodys_place(stage: Stage) -> None:
    """Each goes alone and waits: more of them than the limit in flight."""
    runs, journals = crew(stage, 5)

    async def write_while_held(other: psycopg.Connection[Any]) -> list[Reply]:
        held = []
        for count, journal in enumerate(journals[:4], 1):
            held.append(asyncio.ensure_future(record(journal, [value()])))
            await until_somebody_waits(count)
        assert (await record(journals[4], [value()])).seq == 3
        assert not any(each.done() for each in held)
        other.rollback()
        return list(await asyncio.gather(*held))

    with holding("SELECT 1 FROM ledger_head WHERE run_id = ANY(%s) FOR UPDATE", [run.id for run in runs[:4]]) as other:
        assert [reply.seq for reply in stage.wait(write_while_held(other))] == [3] * 4
    assert is_sound(*runs)


def test_what_postgresql_cannot_hold_is_refused_before_anything_is_sent(stage: Stage) -> None:
    runs, journals = crew(stage, 2)
    nul = Entry("a\x00", 0, "committed", "t", "pure")
    bad, good = together(stage, record(journals[0], [value(payload=1)], entries=[nul]), record(journals[1], [value()]))
    assert isinstance(bad, psycopg.DataError) and good.seq == 3 and is_sound(*runs)


# --- lost answers ---


@pytest.mark.parametrize("what", ["question", "answer"])
@pytest.mark.parametrize("is_prepared", [False, True], ids=["preparing", "prepared"])
@together_in_one
def test_each_run_finds_out_about_a_lost_batch(stage: Stage, wire: LossyWire, is_prepared: bool, what: Any) -> None:
    runs, journals = crew(stage, 4)
    if is_prepared:
        together(stage, *(record(journal, [value(8)]) for journal in journals))
    before = [kinds(run).count("ValueRead") for run in runs]
    wire.lose((1, what))
    replies = together(stage, *(record(journal, [value(9)]) for journal in journals))
    assert wire.has_lost and all(reply.is_done for reply in replies)
    assert [kinds(run).count("ValueRead") - was for run, was in zip(runs, before, strict=True)] == [1] * 4
    assert [kinds(run).count("RunClaimed") for run in runs] == [2] * 4
    assert [reply.seq for reply in replies] == [head(run).seq for run in runs] and is_sound(*runs)
    again = together(stage, *(record(journal, [value(10)]) for journal in journals))
    assert all(reply.is_done for reply in again)


@together_in_one
def test_a_batch_is_one_round_trip(stage: Stage, wire: LossyWire) -> None:
    _, journals = crew(stage, 8)
    assert counted(wire, lambda: together(stage, *(record(journal, [value()]) for journal in journals))) == 1


# --- cut off ---


def snapped(journal: PgJournal) -> Coroutine[Any, Any, Reply]:
    return record(journal, [value()], snapshot=Snapshot("one", 1, 0, "print", {}))


@together_in_one
def test_cutting_one_off_leaves_its_neighbours_alone(stage: Stage) -> None:
    runs, journals = crew(stage, 3)

    async def cut(other: psycopg.Connection[Any]) -> list[Any]:
        tasks = [asyncio.ensure_future(snapped(journal)) for journal in journals]
        await until_somebody_waits()
        tasks[2].cancel()
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks), "it is over when the batch is: its run writes nothing before"
        other.rollback()
        done = list(await asyncio.gather(*tasks, return_exceptions=True))
        released = [e.RunReleased(reason="drain deadline")]
        return [*done, await journals[2].leave("release", released, state="running")]

    with holding(RUN, runs[0].id) as other, beside_another(stage):
        first, second, third, released = stage.wait(cut(other))
    assert (first.seq, second.seq) == (3, 3) and isinstance(third, asyncio.CancelledError)
    assert released.is_done and kinds(runs[2])[-2:] == ["ValueRead", "RunReleased"] and is_sound(*runs)
    assert [reply.seq for reply in together(stage, *(record(j, [value(1)]) for j in journals[:2]))] == [4, 4]


@together_in_one
def test_a_batch_that_nobody_waits_for_is_cut_off_at_the_server(stage: Stage) -> None:
    """At a drain's deadline all tasks are cancelled while the batch still waits for a lock."""
    runs, journals = crew(stage, 3)

    async def cut() -> list[Any]:
        tasks = [asyncio.ensure_future(snapped(journal)) for journal in journals]
        await until_somebody_waits()
        for task in tasks:
            task.cancel()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    with holding(RUN, runs[0].id), beside_another(stage):
        assert [type(answer) for answer in stage.wait(cut())] == [asyncio.CancelledError] * 3
        assert [kinds(run)[-1] for run in runs] == ["RunClaimed"] * 3
    assert [reply.seq for reply in together(stage, *(snapped(journal) for journal in journals))] == [3, 3, 3]
    assert commits(*runs) == 1 and is_sound(*runs)


@together_in_one
def test_what_is_cut_off_before_it_is_sent_is_never_written(stage: Stage) -> None:
    runs, journals = crew(stage, 3)

    async def cut() -> list[Any]:
        tasks = [asyncio.ensure_future(record(journal, [value()])) for journal in journals]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    with beside_another(stage):
        first, second, third = stage.wait(cut())
    assert (first.seq, third.seq) == (3, 3) and isinstance(second, asyncio.CancelledError)
    assert kinds(runs[1])[-1] == "RunClaimed" and commits(runs[0], runs[2]) == 1
    assert stage.wait(record(journals[1], [value()])).seq == 3


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize(("count", "shares"), [(1, 2), (2, 1), (5, 2)])
def test_wherever_they_are_cut_off_the_next_ones_go(
    stage: Stage, count: int, shares: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committing, "SHARES", shares)
    runs, journals = crew(stage, count)

    async def cut() -> list[Any]:
        tasks = [asyncio.ensure_future(record(journal, [value()])) for journal in journals]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return list(await asyncio.gather(*(record(journal, [value(1)]) for journal in journals)))

    assert [reply.seq for reply in stage.wait(cut())] == [head(run).seq for run in runs]
    assert is_sound(*runs) and (found := committer(stage.wait(stage.connected()))).in_flight == found.carried == 0


@together_in_one
def test_each_run_of_a_batch_passes_failpoint(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, journals = crew(stage, 3)
    armoury = failpoints._Armoury(f"CP10/{runs[1].id}:raise:1", tmp_path)
    monkeypatch.setattr(failpoints, "_armoury", lambda: armoury)
    assert stage.wait(record(journals[1], [value(0)])).seq == 3
    answers = together(stage, *(record(journal, [value(1)]) for journal in journals))
    assert [type(answer) for answer in answers] == [failpoints.FailpointHit] * 3
    assert [head(run).seq for run in runs] == [2, 3, 2], "nothing was sent"
    assert [reply.seq for reply in together(stage, *(record(journal, [value(1)]) for journal in journals))] == [3, 4, 3]


# --- alone ---


def test_one_alone_goes_at_once_by_itself(stage: Stage) -> None:
    """In its turn of the event loop, as a plain call of the step's function."""
    stage.loop.close()
    stage.loop = kept.Loop()  # its connections have prepared nothing yet
    _, (journal,) = crew(stage, 1)
    pool = stage.wait(stage.connected())

    async def write() -> int:
        writing = asyncio.ensure_future(record(journal, [value()]))
        turns = 0
        while committer(pool).in_flight == 0:
            await asyncio.sleep(0)
            turns += 1
        assert (await writing).seq == 3
        return turns

    assert stage.wait(write()) <= 1

    async def prepared() -> list[str]:
        found = []
        for _ in range(pool.max_size):
            async with pool.connection() as link:
                rows = await (await link.execute("SELECT statement FROM pg_prepared_statements")).fetchall()
                found += [statement for (statement,) in rows]
        return found

    assert [each for each in stage.wait(prepared()) if "runs_record" in each]
    assert not [each for each in stage.wait(prepared()) if "SKIP LOCKED" in each]
