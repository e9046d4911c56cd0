"""Fixtures for every test: free ports, a Chromium, and an embedded PostgreSQL in a temporary folder."""

from __future__ import annotations

import gc
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
from hypothesis import settings

from tests.sharing import ByInstallation, longest_first
from tests.smoke import is_smoke, unknown
from tests.tiers import LONG, many, takes_part

CHECKOUT = Path(__file__).resolve().parent.parent
TEST_DATABASE = "durableagents_test"
_SERVER: Any = None
# The structure of this worker's database after its migration.
_MIGRATED: dict[str, str] = {}
_LACKING = pytest.StashKey[int]()


# --- the database server ------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long ranges too, and every example of a property")
    parser.addoption("--smoke", action="store_true", help="of tests/system only what tests/smoke.py names (make test)")
    parser.addoption("--rest", action="store_true", help="only what --smoke leaves out (make test-system)")


def pytest_configure(config: pytest.Config) -> None:
    """Under xdist the controller starts the server, because it outlives every worker."""
    config.addinivalue_line("markers", "every(n): `make test` takes every n-th case of a parametrized test")
    config.addinivalue_line("markers", "needs(*apps): left out without these apps of durableagents/contrib; () is all")
    if config.getoption("long") or config.getoption("rest"):
        os.environ[LONG] = "1"
    # An example's duration depends more on the load of the machine than on the code.
    settings.register_profile("tests", deadline=None, max_examples=many(100, 50), derandomize=LONG not in os.environ)
    settings.load_profile("tests")
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if is_controller:
        is_unit = all("tests/unit" in argument for argument in config.args)
        if not config.option.collectonly and not is_unit:
            _start_server()
    else:
        gc.disable()  # until pytest_collection_finish: the collected tests stay in memory anyway


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wrong = unknown(items) if config.args == list(config.getini("testpaths")) else []
    if wrong:
        raise pytest.UsageError(f"tests/smoke.py names tests that do not exist: {', '.join(wrong)}")
    lacking = {item for item in items if _lacks_apps(item)}
    config.stash[_LACKING] = len(lacking)
    left_out = {item for item in items if item in lacking or not _is_wanted(config, item)}
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items)


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    """Say loudly that tests are left out for want of apps."""
    lacking = config.stash.get(_LACKING, 0)
    return f"{lacking} tests need apps that are not installed: left out" if lacking else ""


def _lacks_apps(item: pytest.Item) -> bool:
    from django.conf import settings

    from durableagents import settings as product

    marker = item.get_closest_marker("needs")
    if marker is None:
        return False
    needed = {f"durableagents.contrib.{app}" for app in marker.args} or {*product.INSTALLED_APPS}
    return not needed <= {*settings.INSTALLED_APPS}


def _is_wanted(config: pytest.Config, item: pytest.Item) -> bool:
    is_long, is_of_make_test = item.get_closest_marker("long") is not None, is_smoke(item) and takes_part(item)
    if config.getoption("rest"):
        return is_long or not is_of_make_test
    if config.getoption("smoke") and not is_of_make_test:
        return False
    return not is_long or config.getoption("long")


def pytest_collection_finish() -> None:
    """Exempt tests and modules, which stay in memory, from garbage collection."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Replace `loadfile`; leave any other requested distribution alone."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return ByInstallation(config, log)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Keep random ids out of test names: xdist's workers compare the names they collected."""
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
    """Start the server unless one runs, and put its address into the environment for xdist's workers."""
    global _SERVER
    if "DURABLEAGENTS_TEST_DATABASE_URL" in os.environ:
        return
    from durableagents.dev.embedded import SETTINGS, Server

    server = Server(Path(os.environ["DURABLEAGENTS_TEST_DATA"]))
    server.prepare()
    # Only a power cut could lose data, and this cluster ends with the tests.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SETTINGS, "fsync", "off")
        patch.setitem(SETTINGS, "full_page_writes", "off")
        # Each test process has tests that open 64 connections at once.
        patch.setitem(SETTINGS, "max_connections", "400")
        server.start()
    _SERVER = server
    os.environ["DURABLEAGENTS_TEST_DATABASE_URL"] = server.url("admin")
    os.environ["DURABLEAGENTS_TEST_OWNER_URL"] = server.url("owner")
    os.environ["DURABLEAGENTS_TEST_RUNTIME_URL"] = server.url("runtime")


@pytest.fixture(scope="session")
def postgres() -> Mapping[str, str]:
    """Return the test server's addresses by role: admin (superuser), owner, runtime."""
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
    """Point Django at the test server, by changing the dict it shares with the connection, since settings are read."""
    from django.db import connections

    found = _settings_for(postgres["admin"], "owner")
    for known in (connections.settings["default"], connections["default"].settings_dict):
        suffix = (known.get("TEST") or {}).get("NAME") or ""
        worker = suffix.rsplit("_", 1)[-1] if "_gw" in suffix else ""
        name = f"{TEST_DATABASE}_{worker}" if worker else TEST_DATABASE
        known.update({key: found[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")})
        known.setdefault("TEST", {})["NAME"] = name


@pytest.fixture(scope="session")
def django_db_setup(postgres: Mapping[str, str], django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Migrate without time limits, as an owner does, then restore the limits for the tests."""
    from django.db import connections

    limited = _settings_for(postgres["admin"], "runtime")["OPTIONS"]
    for known in (connections.settings["default"], connections["default"].settings_dict):
        known["OPTIONS"] = dict(limited)
    connections["default"].close()
    from approvals.queues.labels import seed
    from tests import kept
    from tests.shape import shape

    with django_db_blocker.unblock():
        _MIGRATED.update(shape())
        # A killed run with --reuse-db may have left other queues.
        with connections["default"].cursor() as cursor:
            cursor.execute("SET session_replication_role = replica; DELETE FROM approvals_queue")
            cursor.execute("RESET session_replication_role")
        seed()
        kept.clean(database_urls(postgres)["admin"])
    yield
    with django_db_blocker.unblock():
        kept.hang_up()


@pytest.fixture(scope="module", autouse=True)
def _database_of_the_same_shape(django_db_blocker: Any) -> Iterator[None]:
    """Fail if a test file leaves functions, triggers or tables changed."""
    yield
    if _MIGRATED:
        from tests.shape import left_behind, shape

        with django_db_blocker.unblock():
            left = left_behind(_MIGRATED, shape())
        assert not left, f"the tests of this file leave the database with another {', '.join(left)}"


@pytest.fixture
def _django_db_helper(_django_db_helper: None) -> None:
    """Let a test's transaction idle for longer: it does under load and while Hypothesis draws an example."""
    from django.db import connection

    if connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '60s'")


def _settings_for(url: str, role: str) -> dict[str, Any]:
    from durableagents import databases, env

    environment = env.Environment(DATABASE_URL=url, DURABLEAGENTS_DB_ROLE=role)  # type: ignore[call-arg]
    return databases.django_databases(environment)["default"]


@pytest.fixture(scope="session", autouse=True)
def _instead_of_djangos_own(django_test_environment: None) -> Iterator[None]:
    """Replace flush, which our triggers refuse, and copying for `response.context`, a tenth of a page's time."""
    from django.template.base import Template
    from django.test import TransactionTestCase

    from tests import kept

    def reset(_test: Any) -> None:
        kept.settle()
        kept.clean(database_urls({"admin": os.environ["DURABLEAGENTS_TEST_DATABASE_URL"]})["admin"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", reset)
        patch.setattr(TransactionTestCase, "_should_reload_connections", lambda _test: False)
        patch.setattr(Template, "_render", lambda template, context: template.nodelist.render(context))
        yield


@pytest.fixture(autouse=True)
def _queues_as_this_test_has_them() -> None:
    """Forget the queues cached during another test."""
    from runs.journal.asked.queues import QUEUES

    QUEUES.forget()


def database_urls(postgres: Mapping[str, str]) -> dict[str, str]:
    """Return the current test database's address by role, for processes a test starts."""
    from django.db import connections

    name = connections["default"].settings_dict["NAME"]
    return {role: url.replace("@/durableagents?", f"@/{name}?") for role, url in postgres.items()}


@pytest.fixture
def process_env(postgres: Mapping[str, str], tmp_path: Path, transactional_db: None) -> dict[str, str]:
    """Environment for real processes, which connect as the runtime role with their own ports and data folder."""
    return process_env_in(tmp_path, postgres)


def process_env_in(folder: Path, postgres: Mapping[str, str]) -> dict[str, str]:
    """Return the same as `process_env` for processes shared by several tests. The caller must unblock the database."""
    from durableagents.models import MasterKey

    MasterKey.objects.all().delete()
    # The processes must accept this one's records: one installation, one master key.
    key, copy = Path(os.environ["DURABLEAGENTS_TEST_DATA"]) / "master.key", folder / "data" / "master.key"
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
        "DURABLEAGENTS_DATA": str(folder / "data"),
        "PORT": str(web),
        "SANDBOX_PORT": str(sandbox),
        "SANDBOX_SMTP_PORT": str(smtp),
    }


# --- ports, processes, browser ------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
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
    """Run `manage.py …` to its end; `env` is added to an environment with its own data folder."""

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
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "DURABLEAGENTS_DATA": str(data), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium. Without one the test is skipped, or fails under CI=true."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return found
    message = "no Chromium on PATH: the browser tests need one (Debian: apt-get install chromium)"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message)
    pytest.skip(message)
