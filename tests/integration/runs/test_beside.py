from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from durableagents import Context, End
from runs import background
from runs.journal import notify
from runs.journal.notify import AsyncBell
from runs.models import Wait
from runs.workers import run_loop, timers, worker_process
from runs.workers.housekeeping import JITTER, Housekeeping
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, fresh, now
from tests.waiting import eventually
from tests.world import Notes, agent_of, ends_with


def stumbling(act: Callable[..., Any], times: int = 2) -> tuple[Callable[..., Any], list[int]]:
    """Return a function that fails the first few times, and the list of its calls."""
    calls: list[int] = []

    def stumbles(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) <= times:
            raise RuntimeError
        return act(*args, **more)

    return stumbles, calls


def test_housekeeping_restarts(stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.sleep(0)
        return End("woke")

    stumbles, calls = stumbling(Housekeeping.keep)
    monkeypatch.setattr(Housekeeping, "keep", stumbles)
    run = stage.start(agent_of(node))
    with working(stage):
        eventually(lambda: str(fresh(run).state) == "completed", what="the timer being rung", seconds=60)
    assert len(calls) > 2 and caplog.text.count("the housekeeping died; it starts again") == 2


def test_silent_error_restarts(stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stumbles, _ = stumbling(timers.sweep)
    monkeypatch.setattr(timers, "sweep", stumbles)
    house = Housekeeping(stage.worker.id)
    assert [house.keep() for _ in range(2)] == [timers.IDLE_SECONDS] * 2
    assert caplog.text.count("housekeeping failed; trying again") == 2
    assert house.keep() <= timers.IDLE_SECONDS * (1 + JITTER)
    house.close()


def test_listener_reconnects(stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    listening = threading.Event()
    plain = run_loop.heard

    async def heard(channel: str, *, name: str) -> AsyncIterator[Any]:
        ring, _ = stumbles
        ring()
        async for each in plain(channel, name=name):
            listening.set()
            yield each

    stumbles = stumbling(lambda: None)
    monkeypatch.setattr(run_loop, "heard", heard)
    with working(stage):
        assert listening.wait(30)
    assert caplog.text.count("the listener died; it starts again") == 2


def test_bell_keeps_its_rings(stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stumbles, _ = stumbling(notify.payloads)
    monkeypatch.setattr(notify, "payloads", stumbles)

    async def rung() -> str:
        async with AsyncBell() as bell:
            async for payload in notify.heard(notify.CHANNEL, name="test"):
                if payload is not None:
                    return payload
                bell.ring("a", 1)
        return ""

    assert stage.wait(asyncio.wait_for(rung(), 30)).split(",")[0] == "a:1"
    assert caplog.text.count("the bell died; it starts again") == 2


def test_a_thread_that_stumbles_begins_again_and_ends_when_it_is_done(caplog: pytest.LogCaptureFixture) -> None:
    stumbles, calls = stumbling(lambda: None)
    thread = threading.Thread(target=background.kept_thread, args=("the heartbeat", stumbles))
    thread.start()
    thread.join(30)
    assert not thread.is_alive() and len(calls) == 3
    assert caplog.text.count("the heartbeat died; it starts again") == 2


def test_what_goes_on_forever_and_doesnt_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()
    calls: list[int] = []

    async def leaves() -> None:
        calls.append(1)
        if len(calls) == 2:
            done.set()
            await asyncio.Event().wait()

    async def story() -> None:
        task = asyncio.create_task(background.run_forever("the pulse", leaves))
        await asyncio.wait_for(done.wait(), 30)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(story())
    assert len(calls) == 2 and "the pulse ended without being asked" in caplog.text


def test_a_worker_says_when_it_loses_its_place_and_when_it_has_it_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    worker = worker_process.Worker(name="w", pulse=lambda is_serving: None)
    worker._presence._confirmed_at = 0.0
    worker._say_whether_fenced()
    worker._say_whether_fenced()
    worker._presence._confirmed_at = float("inf")
    worker._say_whether_fenced()
    assert caplog.text.count("has lost its registration") == 1
    assert caplog.text.count("is registered again") == 1


def test_a_run_that_another_worker_went_on_with_is_forgotten(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with(1)))
    (claimed,) = stage.claim()
    with working(stage, stage.hire()) as other:
        other._failures[run.id] = 2
        other._next_round_at = float("inf")

        async def drive() -> None:
            from tests.integration.runs.test_beside import _drive_stale

            await _drive_stale(other, claimed)

        asyncio.run_coroutine_threadsafe(drive(), eventually(lambda: other._loop, what="the loop")).result(60)
        assert run.id not in other._failures
    assert Wait.objects.filter(run=run, deadline__lt=now() - timedelta(days=1)).count() == 0


async def _drive_stale(host_: Any, claimed: Any) -> None:
    from dataclasses import replace

    from psycopg_pool import AsyncConnectionPool

    from runs.connections import dsn
    from runs.workers.engine_runtime import runtime

    async with (
        AsyncConnectionPool(
            dsn(name="durableagents test"), min_size=1, max_size=1, open=False, kwargs={"autocommit": True}
        ) as pool,
        AsyncBell() as bell,
    ):
        stale = replace(claimed, epoch=claimed.epoch - 1)
        host_._start(stale, pool, runtime(), bell)
        task, _ = host_._active[claimed.run_id]
        await task
