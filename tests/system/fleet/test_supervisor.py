"""Work continues whichever part of the worker tree is killed, and a death is proven before it is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection

from runs import log_messages
from runs.fleet import members, procfs
from runs.services import wakeups
from tests.system.fleet.conftest import Crew, is_alive
from tests.system.infra.installation import assert_refused, cmdline
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ROLES = ["worker", "sentinel"]
# The promise is about a second; a loaded two-core machine gets more time.
PROMPTLY = 30.0


def the_only(crew: Crew) -> int:
    (worker,) = crew.serving()
    return worker


def test_any_death_replaces_the_cluster_and_leaves_the_other_alone(crew: Crew) -> None:
    """Each role's in turn, in the older cluster at that time."""
    crew.start(processes=2)
    for role in ROLES:
        hit, other = crew.serving()
        tree, other_tree = crew.tree(hit), crew.tree(other)
        sentinel = procfs.stat(tree["sentinel"])
        assert sentinel is not None and (sentinel.parent, sentinel.session) == (crew.pid, sentinel.pid)
        eventually(lambda: any("nursery" in cmdline(pid) for pid in crew.descendants()), what="the nursery")

        os.kill(tree[role], signal.SIGKILL)
        begun = time.monotonic()
        replacement = _other_than(crew, hit, other, what=f"another worker after the death of a {role}")
        print(f"restart after the death of a {role}: {time.monotonic() - begun:.2f} s")  # noqa: T201

        _ended(crew, hit, tree, what=f"after the death of a {role}")
        assert crew.tree(other) == other_tree, role
        _reaped(tree["sentinel"])
        expected = [("supervisor", crew.pid)]
        for each in (crew.tree(replacement), other_tree):
            expected += [("worker" if name == "worker" else "cluster", pid) for name, pid in each.items()]
        _are_listed(expected, what=f"the fleet's list after the death of a {role}")
    assert {row.slots_total for row in members.alive() if row.kind == "worker"} == {7}
    eventually(lambda: {row.slots_used for row in members.alive() if row.kind == "worker"} == {1})


def _other_than(crew: Crew, *known: int, what: str) -> int:
    return eventually(lambda: next((pid for pid in crew.serving() if pid not in known), 0), seconds=PROMPTLY, what=what)


def _ended(crew: Crew, worker: int, tree: dict[str, int], what: str) -> None:
    eventually(lambda: not any(is_alive(pid) for pid in tree.values()), what=f"the old tree's end {what}")
    died = crew.incarnation(worker)
    eventually(lambda: died in {note[0] for note in crew.notes("died")}, seconds=PROMPTLY, what=f"the report {what}")


def _reaped(pid: int) -> None:
    eventually(lambda: procfs.stat(pid) is None, what="the old tree's being reaped")


def _are_listed(expected: list[tuple[str, int]], what: str) -> None:
    eventually(lambda: sorted((row.kind, row.pid) for row in members.alive()) == sorted(expected), what=what)


def test_a_supervisor_killed_at_any_moment_of_its_start_leaves_nobody_behind(crew: Crew) -> None:
    """Its children import for a second before they can do anything else."""
    crew.start(processes=2, wait=False)
    everybody = eventually(lambda: crew.descendants() if len(crew.descendants()) >= 2 else None, what="children")
    os.kill(crew.pid, signal.SIGKILL)
    eventually(lambda: not any(is_alive(pid) for pid in everybody), seconds=20, what="the end of all children")


def test_a_killed_supervisor_takes_everything_with_it(crew: Crew) -> None:
    crew.start(processes=2)
    trees = [crew.tree(worker) for worker in crew.serving()]
    everybody = crew.descendants()
    assert {pid for tree in trees for pid in tree.values()} <= set(everybody)
    os.kill(crew.pid, signal.SIGKILL)
    begun = time.monotonic()
    eventually(lambda: not any(is_alive(pid) for pid in everybody), seconds=20, what="the end of all children")
    print(f"all children ended {time.monotonic() - begun:.2f} s after their supervisor")  # noqa: T201


def test_the_next_supervisor_reports_the_workers_of_a_killed_one(crew: Crew) -> None:
    crew.start(processes=1)
    worker = the_only(crew)
    eventually(lambda: any(row.kind == "worker" for row in members.alive()))
    os.kill(crew.pid, signal.SIGKILL)
    assert crew.process is not None
    crew.process.wait()
    eventually(lambda: not is_alive(worker))
    crew.start(processes=1)
    eventually(lambda: crew.incarnation(worker) in {died[0] for died in crew.notes("died")}, what="the report")


def test_sigterm_drains_the_workers_and_ends_with_zero(crew: Crew) -> None:
    crew.start(processes=2)
    workers, everybody = crew.serving(), crew.descendants()
    assert crew.stop() == 0
    assert {int(pid) for (pid,) in crew.notes("drained")} == set(workers)
    assert not any(is_alive(pid) for pid in everybody)
    assert members.alive() == []


def test_sigterm_to_everybody_at_once_drains_too(crew: Crew) -> None:
    """Service managers signal all processes of a unit, and django-q2's main process would hang on that."""
    crew.start(processes=1)
    worker = the_only(crew)
    for pid in [crew.pid, *crew.tree(worker).values()]:
        with suppress(ProcessLookupError):  # one that had only started the others may be gone by now
            os.kill(pid, signal.SIGTERM)
    assert crew.process is not None
    assert crew.process.wait(timeout=20) == 0
    assert crew.notes("drained") == [[str(worker)]]


def test_a_worker_that_does_not_drain_is_cut_at_the_deadline(crew: Crew) -> None:
    crew.start(processes=1, STANDIN_BEHAVIOUR="slow drain", DURABLEAGENTS_DRAIN_SECONDS="1")
    everybody = crew.descendants()
    begun = time.monotonic()
    assert crew.stop() == 0
    assert time.monotonic() - begun < 60
    assert not any(is_alive(pid) for pid in everybody)


def test_a_second_signal_stops_at_once(crew: Crew) -> None:
    crew.start(processes=1, STANDIN_BEHAVIOUR="slow drain")
    everybody = crew.descendants()
    assert crew.process is not None
    crew.process.send_signal(signal.SIGINT)
    eventually(lambda: crew.notes("drain"))
    crew.process.send_signal(signal.SIGINT)
    assert crew.process.wait(timeout=30) == 1
    assert not any(is_alive(pid) for pid in everybody)


def test_a_worker_told_to_stop_drains_and_another_takes_its_place(crew: Crew) -> None:
    crew.start(processes=1)
    worker = the_only(crew)
    os.kill(worker, signal.SIGTERM)
    eventually(lambda: crew.serving() and crew.serving() != [worker], what="a new worker")
    assert crew.notes("drained") == [[str(worker)]]


def test_a_host_that_breaks_ends_its_process_and_the_traceback_is_kept(crew: Crew) -> None:
    crew.start(processes=1, STANDIN_BEHAVIOUR="raise")
    worker = the_only(crew)
    wakeups.drive(uuid4())
    eventually(lambda: crew.serving() and crew.serving() != [worker], what="a new worker")
    assert "RuntimeError: the host broke" in crew.log()


def test_silent_workers_are_noticed_without_the_database_and_replaced(crew: Crew) -> None:
    crew.start(processes=2, STANDIN_BEHAVIOUR="wedge")
    wakeups.drive(uuid4())
    ((rung,),) = eventually(lambda: crew.notes("ring"), what="the ring that makes a loop hang")
    stuck, stopped = sorted(crew.serving(), key=lambda pid: pid != int(rung))
    os.kill(stopped, signal.SIGSTOP)
    eventually(
        lambda: not {stuck, stopped} & set(crew.serving()) and len(crew.serving()) == 2, what="new workers", seconds=60
    )
    assert crew.log().count("sent no heartbeat") == 2
    dead = {crew.incarnation(stuck), crew.incarnation(stopped)}
    eventually(lambda: {died[0] for died in crew.notes("died")} == dead, what="the reports")


def test_a_dead_nursery_is_replaced_and_nobody_else_notices(crew: Crew) -> None:
    crew.start(processes=1)
    tree = crew.tree(the_only(crew))
    (nursery,) = eventually(lambda: set(crew.descendants()) - set(tree.values()), what="the nursery")
    os.kill(nursery, signal.SIGKILL)
    eventually(lambda: set(crew.descendants()) - set(tree.values()) - {nursery}, what="another nursery")
    assert crew.tree(the_only(crew)) == tree


def test_a_nursery_that_does_not_answer_is_done_without(crew: Crew) -> None:
    """It is stopped when a cluster dies: another one is made and forks."""
    crew.start(processes=2)
    hit, other = crew.serving()
    (nursery,) = eventually(
        lambda: [pid for pid in crew.descendants() if "nursery" in cmdline(pid)], what="the nursery"
    )
    os.kill(nursery, signal.SIGSTOP)
    os.kill(hit, signal.SIGKILL)
    eventually(lambda: hit not in crew.serving() and len(crew.serving()) == 2, what="a new worker", seconds=40)
    assert other in crew.serving()
    eventually(lambda: procfs.stat(nursery) is None, what="the old nursery's being reaped")


def test_a_message_rings_a_host_in_time(crew: Crew) -> None:
    """For a host that isn't listening itself, like this stand-in."""
    crew.start(processes=2)
    crew.tree(crew.serving()[0])
    for _ in range(3):
        heard = len(crew.notes("ring"))
        wakeups.drive(uuid4())
        eventually(lambda heard=heard: len(crew.notes("ring")) > heard, seconds=60, what="the ring")  # type: ignore[misc]


def test_lost_connections_are_replaced_without_a_restart(crew: Crew) -> None:
    crew.start(processes=1)
    tree = crew.tree(the_only(crew))
    eventually(lambda: len(members.alive()) == 3)
    for _ in range(3):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                "current_database() AND application_name LIKE 'durableagents%'"
            )
        heard = len(crew.notes("ring"))
        eventually(lambda: _pushers() == 1, what="the pusher connected again")
        wakeups.drive(uuid4())
        eventually(lambda heard=heard: len(crew.notes("ring")) > heard, what="the ring")  # type: ignore[misc]
    assert crew.tree(the_only(crew)) == tree
    assert crew.log().count("the database is away") <= 12


def _pushers() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
            "application_name = 'durableagents pusher'"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("option", ["--processes=0", "--processes=many", "--slots=-1"])
def test_a_wrong_number_is_one_line_and_exit_code_two(
    manage: Callable[..., subprocess.CompletedProcess[str]], option: str
) -> None:
    done = manage("worker", option)
    assert_refused(done, option.split("=")[0])


def test_a_renewal_replaces_the_workers_one_after_the_other_and_never_leaves_fewer(crew: Crew) -> None:
    crew.start(processes=2)
    old, fewest = crew.serving(), 2
    os.kill(crew.pid, signal.SIGUSR1)

    def is_done() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(crew.serving()))
        return log_messages.RENEWAL_DONE in crew.log() and not set(crew.serving()) & set(old)

    eventually(is_done, seconds=60, what="two new workers")
    assert fewest == 2 == len(crew.serving())
    assert sorted(int(pid) for (pid,) in crew.notes("drained")) == sorted(old)
    eventually(lambda: any("nursery" in cmdline(pid) for pid in crew.descendants()), what="a nursery with the new code")
    assert crew.stop() == 0


def test_a_renewal_that_comes_to_nothing_leaves_the_old_workers_serving(crew: Crew, tmp_path: Path) -> None:
    crew.start(processes=2, STANDIN_REFUSE=str(tmp_path / "refuse"))
    old = crew.serving()
    (tmp_path / "refuse").touch()
    os.kill(crew.pid, signal.SIGUSR1)
    eventually(lambda: "the renewal is given up" in crew.log(), what="the end of the renewal")
    assert crew.serving() == old and crew.notes("drain") == []
    (tmp_path / "refuse").unlink()
    os.kill(crew.pid, signal.SIGUSR1)
    eventually(lambda: log_messages.RENEWAL_DONE in crew.log(), seconds=60, what="the next renewal")
    assert not set(crew.serving()) & set(old)


def test_a_drain_in_the_middle_of_a_renewal_ends_everybody(crew: Crew) -> None:
    crew.start(processes=2)
    os.kill(crew.pid, signal.SIGUSR1)
    eventually(lambda: "renewing 2" in crew.log(), what="its beginning")
    everybody = crew.descendants()
    assert crew.stop() == 0
    assert not any(is_alive(pid) for pid in everybody)
