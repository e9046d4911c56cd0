"""Heads follow the database; one that lacks a head's mark sends nothing until that is settled."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from durableagents.contrib.halts import services as halts
from durableagents.contrib.halts.models import HaltNow
from durableagents.contrib.halts.services import LiftBody
from durableagents.contrib.halts.verify import check_halts
from durableagents.contrib.restore_hold import heads, holding, marking
from durableagents.contrib.restore_hold.comparing import Adopt, Found, Hold
from durableagents.contrib.restore_hold.doubts import find_doubts
from durableagents.contrib.restore_hold.models import Finding, Mark
from durableagents.management.commands import up
from ledger.models import ActRecord
from runs.connections import dsn
from runs.models import Run
from tests.contrib.halts.halting import calls, release_all, tagged
from tests.integration.api.conftest import person
from tests.integration.runs.stage import Stage
from tests.waiting import eventually
from tests.world import OLGA, Toolbox

pytestmark = pytest.mark.django_db
OnHost = Callable[[str], Path]


def commit() -> None:
    """Set a mark and write the head, as the thread does after commits."""
    marker = marking.Marker(lambda: 1)
    marker._attempt()
    marker._hang_up()


def restore(number: int) -> None:
    """Put the database back to a mark."""
    Mark.objects.update(number=number)


def number() -> int:
    found = heads.read()
    assert found is not None
    return found.number


def lift(hold: HaltNow) -> None:
    halts.lift(hold.halt, LiftBody(justification="compared with the bank", revision=None), by=OLGA)


def test_status_says_that_the_head_file_is_damaged(some_run: Callable[[], Run], on_host: OnHost) -> None:
    some_run()
    file = on_host("one")
    holding.settle()
    commit()
    file.write_text("{")
    for _ in range(3):  # as found, as the hold left it, and as a worker that starts later found it
        output = io.StringIO()
        with suppress(SystemExit):
            call_command("restore_hold", "status", stdout=output)
        (line,) = [each for each in output.getvalue().splitlines() if each.startswith("head")]
        assert "damaged" in line and "missing" not in line
        holding.settle()
    file.unlink()
    call_command("restore_hold", "lift", "--all", "--reason", "all are cleared", stdout=io.StringIO())
    output = io.StringIO()
    with pytest.raises(SystemExit) as status:
        call_command("restore_hold", "status", stdout=output)
    assert status.value.code == 1 and "\tmissing" in output.getvalue() and "not held yet" in output.getvalue()


def test_up_says_that_the_installation_is_held(some_run: Callable[[], Run], on_host: OnHost) -> None:
    on_host("one")
    assert up.hold_lines() == ""
    call_command("restore_hold", "place", "--reason", "moving", stdout=io.StringIO())
    assert "HELD" in up.hold_lines() and "restore_hold status" in up.hold_lines()
    call_command("restore_hold", "lift", "--all", "--reason", "all are cleared", stdout=io.StringIO())
    assert up.hold_lines() == ""


@pytest.fixture
def some_run(stage: Stage, tools: Toolbox) -> Callable[[], Run]:
    """Start a run that nobody drives, so that the database isn't empty."""
    return lambda: tagged(calls(tools, "look"))


def committed(commits: list[int]) -> None:
    """Count a commit, and wait until the thread has written a newer head."""
    reached = number()
    commits[0] += 1
    eventually(lambda: number() > reached, "a newer head")


@contextmanager
def presence() -> Iterator[None]:
    """Hold the lock by which the database knows that this worker process is alive."""
    with psycopg.connect(dsn(name="test presence"), autocommit=True) as link:
        link.execute("SELECT pg_advisory_lock(hashtextextended(%s::text, 7231002))", [marking.own_incarnation()])
        yield


def in_force() -> HaltNow:
    hold = holding.find_hold()
    assert hold is not None
    return hold


def test_a_run_of_a_restored_database_sends_nothing_and_its_call_is_listed(
    stage: Stage, tools: Toolbox, on_host: OnHost
) -> None:
    on_host("one")
    run = tagged(calls(tools, "mail"))
    assert isinstance(holding.settle(), Adopt)  # runs may wait before the first worker starts
    for _ in range(3):
        commit()
    restore(number() - 1)
    verdict = holding.settle()
    assert isinstance(verdict, Hold) and verdict.reason == "behind"
    assert isinstance(holding.settle(), Hold)
    hold = in_force()
    assert HaltNow.objects.count() == 1 and hold.key == "restored-database" and hold.by == "system:restore-hold"
    assert [each.reason for each in holding.findings_of(hold.halt)] == ["behind"]
    assert stage.drive() == "idle" and not tools.outside.requests
    [call] = find_doubts().upcoming
    assert (call.run, call.agent, call.is_near) == (run.pk, "thrower@1.0.0", True)

    lift(hold)
    assert isinstance(holding.settle(), Adopt) and holding.settle() == Found()
    release_all()
    assert stage.drive() == "completed" and len(tools.outside.requests) == 1
    assert (record := check_halts()) is not None and not record.problems
    assert list(ActRecord.objects.filter(action__startswith="halt").values_list("action", "by")) == [
        ("halt", "system:restore-hold"),
        ("halt_lift", OLGA.ref),
    ]


def test_the_hold_lifts_itself_only_when_every_missing_head_is_found(
    some_run: Callable[[], Run], on_host: OnHost
) -> None:
    first = on_host("one")
    some_run()
    holding.settle()
    commit()
    kept = first.read_bytes()
    first.unlink()
    assert isinstance(holding.settle(), Hold)  # a fresh machine, as far as anybody knows
    second = on_host("two")
    assert isinstance(holding.settle(), Hold)
    second.write_bytes(b"nothing that was ever written")
    assert isinstance(holding.settle(), Hold) and second.with_name("restore.head.damaged").exists()
    hold = in_force()
    assert sorted(each.reason for each in holding.findings_of(hold.halt)) == ["damaged-head", "no-head", "no-head"]
    forged = Finding(
        halt=hold.halt, host=UUID(int=9), host_name="x", reason="found", head={}, database={}, at=hold.since
    )
    forged.save()  # without a code

    second.write_bytes(kept)
    assert holding.settle() == Found() and holding.find_hold() is not None  # host one still lacks its head
    on_host("one")
    first.write_bytes(kept)
    assert holding.settle() == Found() and holding.find_hold() is None
    assert {each.reason for each in holding.findings_of(hold.halt)} == {"found"}


def test_hosts_that_come_late_follow_what_was_accepted_and_hold_for_what_was_not(
    some_run: Callable[[], Run], on_host: OnHost
) -> None:
    on_host("one")
    some_run()
    holding.settle()
    commit()
    first = heads.read()
    assert first is not None
    for n, (name, commits) in enumerate((("one", 3), ("two", 1), ("three", 2)), 1):
        on_host(name)
        with heads.locked():
            heads.write(replace(first, host=UUID(int=n)))
        for _ in range(commits):
            commit()  # numbers rise from host to host
    on_host("two")
    restore(2)
    assert isinstance(holding.settle(), Hold)
    lift(in_force())
    assert isinstance(holding.settle(), Adopt)
    on_host("one")  # knows of less than host two reported, but not how far that one has come since
    verdict = holding.settle()
    assert isinstance(verdict, Hold) and verdict.reason == "unconfirmed"
    holding.vouch(marking.own_incarnation())
    on_host("two")
    assert holding.settle() == Found()
    holding.vouch(marking.own_incarnation())
    with presence():
        on_host("one")
        assert holding.settle() == Found() and holding.find_hold() is None
        on_host("three")  # knows of commits that nobody had reported
        verdict = holding.settle()
        assert isinstance(verdict, Hold) and verdict.reason == "behind" and in_force()


def test_a_new_host_follows_a_database_for_which_a_living_worker_vouches(
    some_run: Callable[[], Run], on_host: OnHost
) -> None:
    on_host("one")
    some_run()
    holding.settle()
    commit()
    holding.vouch(marking.own_incarnation())
    on_host("two")
    assert isinstance(holding.settle(), Hold)  # a row that a backup may contain: nobody holds the lock
    with presence():
        assert holding.settle() == Adopt("a living worker vouches")
    assert holding.find_hold() is None  # it was the only one that lacked a head


def test_a_database_that_is_put_back_under_running_workers_holds(some_run: Callable[[], Run], on_host: OnHost) -> None:
    file = on_host("one")
    some_run()
    commits = [0]
    with marking.marking(lambda: commits[0]):
        eventually(file.exists, "a head")
        for _ in range(3):
            committed(commits)
        restore(number() - 2)
        commits[0] += 1
        eventually(lambda: holding.find_hold() is not None, "the hold")
        lift(in_force())
        eventually(lambda: (head := heads.read()) and head.waits_for is None, "the worker follows")
        committed(commits)


def test_the_thread_writes_the_head_after_commits_only_and_fences_while_it_cannot(
    some_run: Callable[[], Run], on_host: OnHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on_host("one")
    some_run()
    holding.settle()
    commits = [0]
    monkeypatch.setattr(marking, "OVERDUE_SECONDS", 0.5)
    monkeypatch.setattr(marking, "SETTLE_SECONDS", 0.1)
    with marking.marking(lambda: commits[0]):
        before = number()
        time.sleep(0.5)
        assert number() == before and not marking.is_overdue()
        commits[0] += 1
        eventually(lambda: number() == before + 1, "a mark within a moment")

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", full)
            commits[0] += 1
            eventually(marking.is_overdue, "the worker stops sending")
            assert number() == before + 1
        eventually(lambda: number() > before + 1 and not marking.is_overdue(), "it goes on")
        commits[0] += 1
    last = number()
    assert Mark.objects.get().number == last  # also what was committed at the very end
    items = [record.getMessage() for record in caplog.records if "head file" in record.getMessage()]
    assert [("No space left" in line, "again" in line) for line in items] == [(True, False), (False, True)]


def test_a_worker_that_cannot_tell_does_not_serve(some_run: Callable[[], Run], on_host: OnHost, tmp_path: Path) -> None:
    (tmp_path / "no-folder").write_text("")
    on_host("no-folder/x")
    process = marking.check_process("worker")
    assert process is not None and "restore.head" in process and "DURABLEAGENTS_RESTORE_HEAD" in process
    assert marking.check_process("web") is None
    on_host("one")
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE restore_hold_test")
        cursor.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        cursor.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO restore_hold_test")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION AUTHORIZATION restore_hold_test")
        process = marking.check_process("worker")
        assert process is not None and "GRANT EXECUTE ON FUNCTION pg_control_system()" in process
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
            cursor.execute("DROP OWNED BY restore_hold_test; DROP ROLE restore_hold_test")


def test_the_page_of_halts_and_the_command_list_the_unknown_outcomes(
    stage: Stage, tools: Toolbox, on_host: OnHost
) -> None:
    on_host("one")
    tagged(calls(tools, "mail", name="payer"), "eu")
    for wrong in (["lift", "--reason", "nothing is held here"], ["place", "--reason", "x"]):
        with pytest.raises(CommandError) as refused:
            call_command("restore_hold", *wrong)
        assert refused.value.returncode == 2
    call_command("restore_hold", "place", "--reason", "moving to another data centre", stdout=io.StringIO())
    client = Client()
    client.force_login(person("otto", "operator"))
    page = client.get("/halts").content.decode()
    assert "Calls with unknown outcomes" in page and "payer" in page and "requested" in page
    output = io.StringIO()
    with pytest.raises(SystemExit) as held:
        call_command("restore_hold", "status", stdout=output)
    assert held.value.code == 1 and "payer@1.0.0" in output.getvalue()
    output = io.StringIO()
    call_command("restore_hold", "lift", "--tag", "eu", "--reason", "Europe is cleared", stdout=output)
    assert "lifted for tag eu" in output.getvalue() and "no longer" not in output.getvalue()
    for unknown in (
        ["--agent", "nosuchagent"],
        ["--tag", "e"],
        ["--agent", "payer", "--tag", "us"],
        ["--agent", "paye"],
    ):
        with pytest.raises(CommandError, match=f"tag us|{unknown[1]}") as refused:
            call_command("restore_hold", "lift", *unknown, "--reason", "its calls are cleared")
        assert refused.value.returncode == 2 and (in_force().agents, in_force().tags) == ([], ["eu"])
    call_command("restore_hold", "lift", "--agent", "payer", "--reason", "its calls are cleared", stdout=output)
    assert "It no longer is for tag eu." in output.getvalue()
    release_all()
    assert stage.drive() == "completed"
    call_command("restore_hold", "lift", "--all", "--reason", "all are cleared", stdout=io.StringIO())
    assert holding.find_hold() is None
