"""A run that kills its workers is driven alone; making room for it never stops the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from durableagents import ReplayClass
from runs import log_messages
from runs.engine.agents import Agent
from runs.models import Process, Run
from runs.workers import run_loop as hosts
from runs.workers.run_loop import Host
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, events, fresh, now
from tests.integration.runs.test_drain import Door, agent_with
from tests.waiting import eventually
from tests.world import agent_of, ends_with


@contextmanager
def beating(*crew: Host) -> Iterator[None]:
    done = threading.Event()

    def beat() -> None:
        while not done.wait(0.1):
            for each in crew:
                Process.objects.filter(pk=each.worker.id).update(last_heartbeat_at=now(), slots_used=each.slots_used)
        connection.close()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def start_solo(stage: Stage, agent: Agent) -> Run:
    with transaction.atomic():
        run = stage.start(agent)
        Run.objects.filter(pk=run.pk).update(is_solo=True)
    return run


def test_busy_fleet_makes_room_for_a_solo_run(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    slow, quick = agent_with(ReplayClass.IDEMPOTENT_WITH_KEY, door, timeout=120.0), agent_of(ends_with(1))
    for _ in range(2):
        stage.start(slow)
    with working(stage, slots=1) as one, working(stage, stage.hire(), slots=1) as two, beating(one, two):
        eventually(lambda: one.slots_used and two.slots_used, what="each in a long call")
        one.slots = two.slots = 10
        solo = start_solo(stage, quick)
        eventually(lambda: one._makes_room or two._makes_room, what="one making room")
        healthy = []
        for _ in range(5):
            healthy.append(stage.start(quick))
            eventually(lambda: str(fresh(healthy[-1]).state) == "completed", what="a healthy run's end", seconds=60)
            assert not (one._makes_room and two._makes_room)
        assert str(fresh(solo).state) == "pending", "everybody's call still lasts"
        door.open()
        eventually(lambda: str(fresh(solo).state) == "completed", what="the one that is driven alone", seconds=60)
    assert caplog.text.count(log_messages.MAKES_ROOM) >= 1
    assert len({e.worker for e in events(solo) if hasattr(e, "worker")}) == 1


def test_the_one_who_makes_room_hands_over_at_the_next_step(stage: Stage) -> None:
    """Its runs continue elsewhere; nothing waits for them to end."""
    door = Door()
    slow, quick = agent_with(ReplayClass.PURE, door, timeout=120.0), agent_of(ends_with(1))
    run = stage.start(slow)
    with working(stage) as one, beating(one):
        eventually(lambda: one.slots_used, what="the long call")
        solo = start_solo(stage, quick)
        eventually(lambda: one._makes_room, what="room being made")
        door.open()
        eventually(lambda: str(fresh(solo).state) == "completed", what="the one that is driven alone", seconds=60)
        eventually(lambda: str(fresh(run).state) == "completed", what="the other one", seconds=60)
    assert "RunReleased" in [type(x).__name__ for x in events(run)]


def test_lone_worker_makes_room_for_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "ROOM_SECONDS", 0.5)
    door = Door()
    slow, quick = agent_with(ReplayClass.IDEMPOTENT_WITH_KEY, door, timeout=120.0), agent_of(ends_with(1))
    stage.start(slow)
    with working(stage) as only, beating(only):
        eventually(lambda: only.slots_used, what="the long call")
        solo = start_solo(stage, quick)
        eventually(lambda: only._makes_room, what="room being made")
        healthy = stage.start(quick)
        eventually(lambda: str(fresh(healthy).state) == "completed", what="a healthy run's end", seconds=60)
        assert str(fresh(solo).state) == "pending"
        door.open()
    assert fresh(solo).ready_at is not None
