from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID, uuid4

import pytest

from runs.fleet.members import Member
from runs.workers.failure_detector import Verdict, Watcher

TTL = 30.0
STEP = 0.5


@dataclass
class World:
    """Time passes in half-second steps; everybody who isn't silent sends heartbeats."""

    members: dict[UUID, Member] = field(default_factory=dict)
    silent: set[UUID] = field(default_factory=set)
    runs_here: set[UUID] = field(default_factory=set)
    server_age: float = 1000.0
    now: float = 0.0
    clock: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    ticks: Iterator[int] = field(default_factory=lambda: count(100))

    def __post_init__(self) -> None:
        self.watcher = Watcher(TTL, lambda member: member.id in self.runs_here)

    def hire(self, host: str = "elsewhere", kind: str = "worker") -> UUID:
        id = uuid4()
        self.members[id] = Member(id, kind, host, "boot", next(self.ticks), 1, self.clock, 0.0, 0.0, True)
        return id

    def sleep(self, seconds: float) -> None:
        """Suspend all machines: the database's clock goes on without heartbeats or watchers."""
        self.clock += timedelta(seconds=seconds)
        self.now += seconds

    def call(self) -> list[Verdict]:
        for id, member in self.members.items():
            if id not in self.silent:
                self.members[id] = replace(member, last_heartbeat_at=self.clock)
        newest: dict[str, datetime] = {}
        for member in self.members.values():
            newest[member.host] = max(newest.get(member.host, member.last_heartbeat_at), member.last_heartbeat_at)
        roll = [
            replace(
                m,
                silence=(self.clock - m.last_heartbeat_at).total_seconds(),
                host_silence=(self.clock - newest[m.host]).total_seconds(),
            )
            for m in self.members.values()
        ]
        return self.watcher.judge(roll, self.server_age, self.now)

    def watch(self, seconds: float) -> tuple[float, list[Verdict]]:
        passed = 0.0
        while passed <= seconds:
            if found := self.call():
                return passed, found
            passed, self.now, self.server_age = passed + STEP, self.now + STEP, self.server_age + STEP
            self.clock += timedelta(seconds=STEP)
        return passed, []

    def lock_gone(self, id: UUID, *, is_gone: bool = True) -> None:
        self.members[id] = replace(self.members[id], is_anchored=not is_gone)


@pytest.fixture
def world() -> World:
    world = World()
    world.hire("here")
    assert world.watch(2 * TTL)[1] == []
    return world


def test_a_lost_lock_is_suspicion_after_a_second_without_a_word(world: World) -> None:
    worker = world.hire()
    world.watch(1)
    world.lock_gone(worker)
    world.silent.add(worker)
    passed, (verdict,) = world.watch(10)
    assert (verdict.id, verdict.cause) == (worker, "suspicion") and 1 <= passed <= 2


def test_a_process_that_announces_itself_again_in_time_is_left_alone(world: World) -> None:
    worker = world.hire()
    world.watch(1)
    world.lock_gone(worker)
    assert world.watch(0.5)[1] == []
    world.lock_gone(worker, is_gone=False)
    assert world.watch(TTL)[1] == []


def test_a_worker_without_its_lock_that_still_beats_is_left_alone(world: World) -> None:
    worker = world.hire()
    world.lock_gone(worker)
    assert world.watch(2 * TTL)[1] == []


def test_a_process_seen_running_on_this_host_is_not_seized_on_suspicion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.fleet.procfs.host", lambda: "here")
    monkeypatch.setattr("runs.fleet.procfs.boot", lambda: "boot")
    worker = world.hire("here")
    world.runs_here.add(worker)
    world.watch(1)
    world.lock_gone(worker)
    world.silent.add(worker)
    assert world.watch(TTL - 2)[1] == []


@pytest.mark.parametrize("what", ["the server has just started", "the watcher has just come"])
def test_a_server_that_has_nobodys_locks_seizes_nothing(world: World, what: str) -> None:
    if what == "the server has just started":
        world.server_age = 0.0
    else:  # as after a failover: the new server is old and the watcher's connection new
        world.watcher = Watcher(TTL, lambda member: False)
    workers = [world.hire() for _ in range(3)]
    for worker in workers:
        world.lock_gone(worker)
        world.silent.add(worker)
    passed, found = world.watch(2 * TTL)
    assert passed >= TTL - 1 and {v.id for v in found} <= set(workers), "not before a whole TTL has passed"


def test_a_host_from_which_nobody_beats_is_gone_after_the_ttl_and_not_before(world: World) -> None:
    workers = [world.hire("lost") for _ in range(2)]
    clerk = world.hire("lost", kind="supervisor")
    world.watch(1)
    world.silent.update([*workers, clerk])
    passed, found = world.watch(2 * TTL)
    assert {(v.id, v.cause) for v in found} == {(w, "host_gone") for w in workers}
    assert TTL <= passed <= TTL + 2


@pytest.mark.parametrize("later", [0.5, 2.0, 5.0])
def test_a_host_that_went_silent_with_its_worker_is_not_said_to_live(world: World, later: float) -> None:
    """Its supervisor's heartbeats are rarer than its workers', so the last sign of life is never everybody's."""
    worker, clerk = world.hire("lost"), world.hire("lost", kind="supervisor")
    world.watch(1)
    world.silent.add(worker)
    world.watch(later)
    world.silent.add(clerk)
    _, (verdict,) = world.watch(2 * TTL)
    assert (verdict.id, verdict.cause) == (worker, "host_gone")


def test_a_silent_worker_of_a_host_that_lives_is_suspected_after_the_ttl(world: World) -> None:
    """It may be suspended; another worker continues after the TTL, and the fence holds it off."""
    worker, other = world.hire("half"), world.hire("half")
    world.runs_here.add(worker)
    world.watch(1)
    world.silent.add(worker)
    passed, (verdict,) = world.watch(2 * TTL)
    assert (verdict.id, verdict.cause) == (worker, "suspicion") and passed >= TTL and other != worker


@pytest.mark.parametrize("hours", [1 / 60, 8])
def test_after_everybody_slept_nobody_is_seized(world: World, hours: float) -> None:
    """Every heartbeat looks old to the first one to wake; the others only need a moment."""
    workers = [world.hire() for _ in range(3)]
    world.watch(1)
    world.sleep(hours * 3600)
    world.silent.update(workers)
    assert world.watch(2)[1] == []
    world.silent.clear()
    assert world.watch(2 * TTL)[1] == []


def test_a_server_that_was_away_for_longer_than_the_ttl_gives_everybody_a_whole_ttl_to_come_back(world: World) -> None:
    workers = [world.hire() for _ in range(3)]
    world.watch(1)
    world.sleep(10 * TTL)
    world.server_age = 0.0
    world.silent.update(workers)
    passed, found = world.watch(2 * TTL)
    assert passed >= TTL - 1 and {v.id for v in found} == set(workers)


def test_who_does_not_wake_with_the_others_is_gone_a_few_seconds_later(world: World) -> None:
    worker = world.hire("lost")
    world.watch(1)
    world.sleep(3600)
    world.silent.add(worker)
    passed, (verdict,) = world.watch(TTL)
    assert verdict.id == worker and 3 <= passed <= 5


def test_workers_that_never_took_a_lock_and_other_kinds_are_nobodys_suspects(world: World) -> None:
    web = world.hire("lost", kind="web")
    world.silent.add(web)
    assert world.watch(3 * TTL)[1] == []
