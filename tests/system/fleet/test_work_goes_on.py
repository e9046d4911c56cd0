"""With the real host: a run survives the death of every process involved."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.actors import Actor
from runs.fleet import members
from runs.models import Process, Run, State
from runs.services import fleet, lifecycle
from tests.system.fleet.conftest import Crew, is_alive
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
SOMEBODY = Actor(kind="user", name="olivia", role="integrator")


@pytest.fixture
def crew(real_crew: Crew) -> Crew:
    return real_crew


class Wait:
    def __init__(self, folder: Path) -> None:
        self.door = folder / "door"
        self.id = lifecycle.start("fleet-patient", {"path": str(self.door)}, by=SOMEBODY).id
        self.knocks = 0

    def driver(self) -> int:
        """Return the worker's pid once it waits, again if need be."""
        eventually(lambda: self._knocks() > self.knocks, what="somebody at the door")
        self.knocks = self._knocks()
        return Process.objects.get(pk=Run.objects.get(pk=self.id).owner).pid

    def _knocks(self) -> int:
        try:
            return Path(f"{self.door}.knocks").read_text().count("knock")
        except FileNotFoundError:
            return 0

    def ends(self) -> None:
        self.door.touch()
        eventually(lambda: Run.objects.get(pk=self.id).state == State.COMPLETED, what="the run's completion")


def test_a_run_goes_on_no_matter_who_is_killed(crew: Crew, tmp_path: Path) -> None:
    crew.start(processes=1, wait=False)
    run = Wait(tmp_path)
    for role in ("worker", "sentinel"):
        driver = run.driver()
        os.kill(crew.tree(driver)[role], signal.SIGKILL)
        eventually(lambda driver=driver: not is_alive(driver), what="the driver's end")  # type: ignore[misc]
    assert is_alive(run.driver())
    run.ends()


def test_a_run_goes_on_when_the_supervisor_is_killed(crew: Crew, tmp_path: Path) -> None:
    crew.start(processes=2, wait=False)
    run = Wait(tmp_path)
    driver = run.driver()
    os.kill(crew.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(driver), what="the driver's end", seconds=30)
    crew.start(processes=2, wait=False)
    assert run.driver() != driver
    run.ends()


def test_the_heartbeat_shows_how_many_slots_are_taken(crew: Crew, tmp_path: Path) -> None:
    crew.start(processes=1, wait=False)
    run = Wait(tmp_path)
    run.driver()
    eventually(
        lambda: [row.slots_used for row in members.alive() if row.kind == "worker"] == [1], what="one slot taken"
    )
    run.ends()
    eventually(
        lambda: [row.slots_used for row in members.alive() if row.kind == "worker"] == [0],
        what="the slot being free",
    )


def test_a_worker_that_an_operator_drains_lets_go_ends_and_is_replaced(crew: Crew, tmp_path: Path) -> None:
    crew.start(processes=1, wait=False, DURABLEAGENTS_DRAIN_SECONDS="0.5")
    run = Wait(tmp_path)
    pid = run.driver()
    (worker,) = Process.objects.filter(kind="worker", pid=pid, ended_at=None)
    fleet.drain(worker.pk, by=replace(SOMEBODY, role="operator"), justification="It misbehaves.")
    eventually(lambda: not is_alive(pid), what="the end of the drained worker")
    assert run.driver() != pid
    run.ends()
    members.hang_up()
