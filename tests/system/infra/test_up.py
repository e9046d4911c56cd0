"""`make up`: one installation started, broken, ended and started again."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.system.infra.installation import Installation, assert_refused, get
from tests.waiting import eventually


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One data folder for the file, so that the first start's work is done once."""
    with Installation(tmp_path_factory.mktemp("up") / "data") as installation:
        yield installation


@pytest.fixture
def running(shared: Installation) -> Installation:
    return shared if shared.is_up() else shared.up_and_ready()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Installation]:
    with Installation(tmp_path / "data") as installation:
        yield installation


def test_demo_file_names_people_and_keys_privately(running: Installation) -> None:
    path = running.data / "demo.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(running.data.stat().st_mode) == 0o700
    found = running.demo()
    roles = {"integrator", "operator", "approver_finance", "approver_legal", "auditor"}
    assert set(found["api_keys"]) == {*roles, "treasurer"}
    assert found["base_url"] == f"http://127.0.0.1:{running.port}"
    assert found["sandbox_url"] == f"http://127.0.0.1:{running.sandbox_port}"
    assert roles <= {role for user in found["users"] for role in user["roles"]}
    assert all(user["password"] for user in found["users"])


def test_every_part_has_a_session_of_its_own(running: Installation) -> None:
    for name in ("web", "sandbox", "supervisor", "postgres"):
        part = running.part(name)
        assert part is not None, name
        assert os.getsid(part.pid) == part.pid, name


def test_second_up_on_the_same_data_is_one_line_and_exit_2(running: Installation) -> None:
    assert_refused(running.run_to_its_end(), "already running")
    assert get(running.port, "/readyz") == 200


@pytest.mark.parametrize("variable", ["PORT", "SANDBOX_PORT", "SANDBOX_SMTP_PORT"])
def test_a_taken_port_is_one_line_and_exit_2(own: Installation, variable: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = own.run_to_its_end(**{variable: str(port)})
    assert_refused(done, f"port {port}", variable)


@pytest.mark.parametrize("name", ["web", "sandbox", "supervisor", "postgres"])
def test_a_killed_part_is_replaced(running: Installation, name: str) -> None:
    old = running.part(name)
    assert old is not None
    old.send_signal(signal.SIGKILL)
    new = eventually(
        lambda: (found := running.part(name)) and found.pid != old.pid and found,
        f"another {name}",
        15,
    )
    eventually(running.is_ready, f"ready with another {name}", 30)
    assert new.is_running()
    running.remember()


def test_ctrl_c_drains_everything_and_the_next_start_keeps_the_keys(running: Installation) -> None:
    keys = running.demo()
    secret = (running.data / "secret_key").read_text()
    code, seconds = running.stop(signal.SIGINT)
    assert code == 0, running.output()
    assert seconds < 35
    assert running.left() == []

    running.up_and_ready()
    assert running.demo() == keys
    assert (running.data / "secret_key").read_text() == secret


def test_second_ctrl_c_stops_at_once(running: Installation) -> None:
    supervisor = running.part("supervisor")
    assert supervisor is not None
    # A part that can't end would be waited for.
    supervisor.send_signal(signal.SIGSTOP)
    running.remember()
    assert running.process is not None
    running.process.send_signal(signal.SIGINT)
    with pytest.raises(psutil.TimeoutExpired):
        psutil.Process(running.process.pid).wait(1)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(30) == 130, "in good order it would have been 0"
    assert running.left() == []


def test_children_of_a_killed_up_end_by_themselves(running: Installation) -> None:
    running.stop(signal.SIGKILL)
    _gone, alive = psutil.wait_procs(list(running.family.values()), timeout=15)
    assert alive == []


def test_killed_up_takes_its_children_along_and_starts_again(running: Installation) -> None:
    keys = running.demo()
    code, _ = running.stop(signal.SIGKILL)
    assert code == -signal.SIGKILL
    # At once, as a person would, while the dead one's children may still be ending.
    running.up_and_ready()
    assert running.demo() == keys


def test_clean_data_removes_what_up_made_and_not_while_it_runs(running: Installation, manage) -> None:  # type: ignore[no-untyped-def]
    assert_refused(manage("clean_data", env=running.environment()))
    code, _ = running.stop(signal.SIGTERM)
    assert code == 0 and running.left() == []
    done = manage("clean_data", env=running.environment())
    assert done.returncode == 0, done.stderr
    assert not running.data.exists()


def test_ctrl_c_while_starting_leaves_nothing_running(own: Installation) -> None:
    process = own.up()
    eventually(lambda: (own.data / "logs" / "postgres.log").exists(), "the database's first word", 30)
    own.remember()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0, own.output()
    assert own.left() == []


def test_a_wrong_database_url_is_one_line_and_exit_2(own: Installation) -> None:
    nowhere = "postgresql://nobody:secretword@127.0.0.1:1/none"
    done = own.run_to_its_end(DATABASE_URL=nowhere, DATABASE_OWNER_URL=nowhere)
    assert_refused(done, "DATABASE_URL")
    assert "secretword" not in done.stderr


def test_an_external_database_is_used_under_two_roles(own: Installation, postgres: Mapping[str, str]) -> None:
    name = "external_" + own.data.parent.name.replace("-", "_")[:40]
    with psycopg.connect(postgres["admin"], autocommit=True) as admin:
        admin.execute(f'create database "{name}" owner durableagents_owner')
        try:
            at = {role: url.replace("@/durableagents?", f"@/{name}?") for role, url in postgres.items()}
            own.up_and_ready(DATABASE_URL=at["runtime"], DATABASE_OWNER_URL=at["owner"])
            assert own.part("postgres") is None
            assert not (own.data / "database.json").exists()
            with psycopg.connect(at["runtime"]) as runtime:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    runtime.execute("delete from ledger_event")
            # Under nohup our processes must ignore a hang-up too.
            is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            code, _ = own.stop(signal.SIGTERM if is_ignored else signal.SIGHUP)
            assert code == 0 and "DATABASE_OWNER_URL" not in own.output() and own.left() == []
        finally:
            admin.execute(f'drop database "{name}" with (force)')
