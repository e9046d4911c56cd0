from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from durableagents import Context, End, ReplayClass, ToolCall, tool
from ledger import events as e
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.engine.content.reads import KeptRead
from runs.engine.journal import Batch
from runs.journal import cache as reads
from runs.journal.cache import ReadCache
from runs.models import CachedRead, Run
from runs.workers import timers
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, events, now, output, problems
from tests.world import Done, Item, Notes, Outside, agent_of


@pytest.fixture
def cache(stage: Stage) -> ReadCache:
    stage.reads = cache = ReadCache(stage.wait(stage.connected()))
    return cache


def reader(outside: Outside) -> Agent:
    @tool(replay_class=ReplayClass.PURE, cache=timedelta(minutes=10))
    async def look(args: Item, call: ToolCall) -> Done:
        return outside.take("look", args, call)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(look, Item(name="a"))).ref)

    return agent_of(node, tools=[look])


def run_once(stage: Stage, cache: ReadCache, agent: Agent) -> Run:
    run = stage.start(agent)
    assert stage.settle(run) == "completed" and output(run) == "look:a"
    stage.wait(cache.settle())
    return run


def test_a_hit_is_on_record_and_the_whole_record_holds(stage: Stage, cache: ReadCache, outside: Outside) -> None:
    agent = reader(outside)
    first, second = run_once(stage, cache, agent), run_once(stage, cache, agent)
    assert len(outside.requests) == 1
    (hit,) = events(second, e.CachedReadTaken)
    assert hit.run_read == str(first.id)
    (row,) = CachedRead.objects.all()
    assert (row.run_id, row.tool) == (first.id, "look") and b"look:a" not in bytes(row.key)
    for run in (first, second):
        assert problems(run) == []
        check_against_journal(run)


CHANGES = {
    "another answer": "sealed = '\\x00225b5d22'",
    "a later end": "expires_at = expires_at + interval '1 day'",
    "a younger read": "at = at + interval '5 minutes'",
    "no code": "code = ''",
    "another code": "code = '\\x01'",
    "another run": f"run_id = '{uuid4()}'",
    "broken": "sealed = '\\x07'",
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_row_that_is_damaged_or_forged_is_a_miss_and_is_found(
    stage: Stage, cache: ReadCache, outside: Outside, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = reader(outside)
    first = run_once(stage, cache, agent)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_cachedread SET {CHANGES[what]}")
    of = CachedRead.objects.get().run_id
    if of == first.id:
        assert any("the cache entry of" in found for found in verify(first.id).problems)
    with caplog.at_level(logging.WARNING):
        second = run_once(stage, cache, agent)
    assert len(outside.requests) == 2 and events(second, e.CachedReadTaken) == []
    assert "is not taken" in caplog.text


def test_a_row_moved_to_another_key_is_a_miss(stage: Stage, cache: ReadCache, outside: Outside) -> None:
    run_once(stage, cache, reader(outside))
    other = bytes(32)
    CachedRead.objects.update(key=other)
    assert stage.wait(cache.find(other)) is None


def test_an_answer_that_the_cache_does_not_give_is_read(stage: Stage, cache: ReadCache, outside: Outside) -> None:
    agent = reader(outside)
    run_once(stage, cache, agent)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_cachedread RENAME TO runs_gone")
    try:
        run_once(stage, cache, agent)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE runs_gone RENAME TO runs_cachedread")
    assert len(outside.requests) == 2


def kept(stage: Stage, cache: ReadCache, key: bytes, at: Any, lifetime: timedelta, result: Any = "x") -> None:
    async def keep() -> None:
        cache.keep(key, "look", KeptRead(result, at, str(uuid4()), "0.1/1"), lifetime)
        await cache.settle()

    stage.wait(keep())


def test_the_newer_read_stays_and_what_is_too_old_is_forgotten(stage: Stage, cache: ReadCache) -> None:
    hour, at = timedelta(hours=1), now()
    kept(stage, cache, b"a" * 32, at, hour, "new")
    kept(stage, cache, b"a" * 32, at - timedelta(minutes=1), hour, "old")
    found = stage.wait(cache.find(b"a" * 32))
    assert found is not None and found.result == "new" and found.at == at
    kept(stage, cache, b"b" * 32, at - 2 * hour, hour)
    assert stage.wait(cache.find(b"b" * 32)) is None and CachedRead.objects.count() == 2
    timers.retire()
    assert [bytes(row.key) for row in CachedRead.objects.all()] == [b"a" * 32]


def test_it_is_bounded_by_rows_and_bytes(stage: Stage, cache: ReadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(6):
        kept(stage, cache, bytes([i]) * 32, now(), timedelta(hours=i + 1), "y" * 50)
    monkeypatch.setattr(reads, "MAX_ROWS", 4)
    assert reads.retire() == 2 and sorted(bytes(r.key)[0] for r in CachedRead.objects.all()) == [2, 3, 4, 5]
    monkeypatch.setattr(reads, "MAX_BYTES", CachedRead.objects.first().size * 2)  # type: ignore[union-attr]
    assert reads.retire() == 2 and sorted(bytes(r.key)[0] for r in CachedRead.objects.all()) == [4, 5]


def test_a_run_and_a_tool_can_be_forgotten(stage: Stage, cache: ReadCache, outside: Outside) -> None:
    run = run_once(stage, cache, reader(outside))
    assert reads.forget(run_id=uuid4()) == reads.forget(tool="other") == 0
    assert reads.forget(run_id=run.id) == 1
    run_once(stage, cache, reader(outside))
    assert reads.forget(tool="look") == 1


def test_a_hit_that_names_a_read_that_nobody_made_is_found(stage: Stage, cache: ReadCache, outside: Outside) -> None:
    agent = reader(outside)
    first = run_once(stage, cache, agent)
    right = {"run_read": str(first.id), "slot_read": "0.1/1", "result": {"ref": "look:a", "amount": 1}}
    late = (now() + timedelta(days=1)).isoformat()
    for wrong, problem in (
        ({"slot_read": "0.1/7"}, "that is not in its journal"),
        ({"result": {"ref": "evil"}}, "differs from the value that run"),
        ({"run_read": "x"}, "which does not exist"),
        ({"read_at": late}, "after the time of the event"),
    ):
        fields = right | {"read_at": now().isoformat()} | wrong
        run = stage.start(agent)
        journal = stage.take(run)
        stage.wait(journal.load())
        hit = e.CachedReadTaken(
            slot="0.1/1",
            tool="look",
            requested_hash="h",
            read_at=fields["read_at"],
            run_read=fields["run_read"],
            slot_read=fields["slot_read"],
            payload={"result": fields["result"]},
        )
        stage.wait(journal.commit(Batch([hit])))
        assert any(problem in found for found in verify(run.id).problems), verify(run.id).problems
