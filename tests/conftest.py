"""What every test may use: a real PostgreSQL of its own, free ports, a Chromium.

The server is the embedded one, in a temporary folder, started with the first test that wants a
database (with xdist: by the controlling process, before its workers) and ended with the run.
Tests connect as its superuser; what the two application roles may do is tested by name
(tests/infra). A database is `durableagents_test`, with a suffix per xdist worker.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
TEST_DATABASE = "durableagents_test"
_SERVER: Any = None


# --- the database server ------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Under xdist the controller starts the server, since it outlives every worker."""
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if is_controller and not config.option.collectonly:
        _start_server()


def pytest_make_parametrize_id(val: object) -> str | None:
    """A random id must not name a test: xdist's workers compare the names they collected."""
    try:
        UUID(str(val))
    except ValueError:
        return None
    return "an-id"


def pytest_unconfigure(config: pytest.Config) -> None:
    global _SERVER
    if _SERVER is not None:
        _SERVER.stop(patience_seconds=2)
        _SERVER.close()
        shutil.rmtree(_SERVER.layout.socket_dir, ignore_errors=True)
        if _SERVER.layout.account:
            shutil.rmtree(_SERVER.layout.pgdata.parent, ignore_errors=True)
        _SERVER = None
    data = os.environ.get("DURABLEAGENTS_TEST_DATA")
    if data and os.environ.get("DURABLEAGENTS_TEST_OWNER_PID") == str(os.getpid()):
        shutil.rmtree(data, ignore_errors=True)


def _start_server() -> None:
    """Start it unless somebody did; its address goes to the environment, for xdist's workers."""
    global _SERVER
    if "DURABLEAGENTS_TEST_DATABASE_URL" in os.environ:
        return
    from durableagents.embedded import Server

    server = Server(Path(os.environ["DURABLEAGENTS_TEST_DATA"]))
    server.prepare()
    server.start()
    _SERVER = server
    os.environ["DURABLEAGENTS_TEST_DATABASE_URL"] = server.url("admin")
    os.environ["DURABLEAGENTS_TEST_OWNER_URL"] = server.url("owner")
    os.environ["DURABLEAGENTS_TEST_RUNTIME_URL"] = server.url("runtime")


@pytest.fixture(scope="session")
def postgres() -> Mapping[str, str]:
    """Addresses of the test server by role: admin (superuser), owner, runtime."""
    _start_server()
    return {
        "admin": os.environ["DURABLEAGENTS_TEST_DATABASE_URL"],
        "owner": os.environ.get("DURABLEAGENTS_TEST_OWNER_URL", ""),
        "runtime": os.environ.get("DURABLEAGENTS_TEST_RUNTIME_URL", ""),
    }


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    postgres: Mapping[str, str], django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Point Django at the test server. The settings were read before it existed, so the one dict
    that settings, handler and connection share is changed in place."""
    from django.db import connections

    from durableagents import databases, env

    found = databases.django_databases(
        env.Environment(DATABASE_URL=postgres["admin"])  # type: ignore[call-arg]
    )["default"]
    for known in (connections.settings["default"], connections["default"].settings_dict):
        suffix = (known.get("TEST") or {}).get("NAME") or ""
        worker = suffix.rsplit("_", 1)[-1] if "_gw" in suffix else ""
        name = f"{TEST_DATABASE}_{worker}" if worker else TEST_DATABASE
        known.update({key: found[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")})
        known.setdefault("TEST", {})["NAME"] = name


@pytest.fixture(scope="session", autouse=True)
def _flush_past_append_only_triggers() -> Iterator[None]:
    """Let a transactional test's flush empty the append-only tables.

    Their statement triggers refuse TRUNCATE, which is what flush does. `replica` switches
    triggers off for the flush's transaction alone; only the superuser of the tests may say it.
    """
    from django.db.backends.postgresql.operations import DatabaseOperations

    plain = DatabaseOperations.sql_flush

    def sql_flush(self: Any, *args: Any, **kwargs: Any) -> list[str]:
        statements = plain(self, *args, **kwargs)
        return ["SET LOCAL session_replication_role = replica", *statements] if statements else []

    DatabaseOperations.sql_flush = sql_flush  # type: ignore[method-assign]
    yield
    DatabaseOperations.sql_flush = plain  # type: ignore[method-assign]


def database_urls(postgres: Mapping[str, str]) -> dict[str, str]:
    """The current test database's address for each role, for processes a test starts."""
    from django.db import connections

    name = connections["default"].settings_dict["NAME"]
    return {role: url.replace("@/durableagents?", f"@/{name}?") for role, url in postgres.items()}


@pytest.fixture
def process_env(postgres: Mapping[str, str], tmp_path: Path, transactional_db: None) -> dict[str, str]:
    """The environment for real processes of ours (web, worker, sandbox) on the test database.

    They connect as the runtime role, as in production, to the database this test sees, on free
    ports and a data folder of their own. Change the copy as needed and hand it to Popen.
    """
    from durableagents.models import MasterKey

    MasterKey.objects.all().delete()
    # What this process puts on record, those must be able to believe: one installation, one master key.
    key, copy = Path(os.environ["DURABLEAGENTS_TEST_DATA"]) / "master.key", tmp_path / "data" / "master.key"
    if key.exists() and not copy.exists():
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(key, copy)
    urls = database_urls(postgres)
    web, sandbox, smtp = free_ports(3)
    return {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "durableagents.settings",
        "DATABASE_URL": urls["runtime"],
        "DATABASE_OWNER_URL": urls["owner"],
        "DURABLEAGENTS_DATA": str(tmp_path / "data"),
        "PORT": str(web),
        "SANDBOX_PORT": str(sandbox),
        "SANDBOX_SMTP_PORT": str(smtp),
    }


# --- ports, processes, browser ------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different: all are held until the last is found."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


@pytest.fixture
def ports() -> Callable[[int], list[int]]:
    return free_ports


@pytest.fixture
def manage(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `manage.py …` to its end; `env` adds to an environment with data of its own."""

    def run(*args: str, env: Mapping[str, str] = {}, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, CHECKOUT / "manage.py", *args],
            env=plain_env(tmp_path / "data") | dict(env),
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


def plain_env(data: Path) -> dict[str, str]:
    """What a person's shell would hand to `manage.py`, with `data` as the data folder."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "DURABLEAGENTS_DATA": str(data), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium on PATH. Without one the test is skipped aloud, and fails under CI=true."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return found
    message = "no Chromium on PATH: the browser tests need one (Debian: apt-get install chromium)"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message)
    pytest.skip(message)
