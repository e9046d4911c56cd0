"""Code and database of two makes: whoever starts on such a pair says so in one line and ends, and changes nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import schema
from tests.conftest import free_ports
from tests.infra.installation import Installation, eventually
from tests.upgrade.make import MASTER_KEY
from tests.upgrade.places import DUMPS, catalog, database, difference, django_on

pytestmark = pytest.mark.django_db
Manage = Callable[..., subprocess.CompletedProcess[str]]
NEWER = (
    "INSERT INTO django_migrations (app, name, applied) VALUES ('runs', '9999_of_the_next_release', clock_timestamp())"
)


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """The mark only says that a database is needed."""


@pytest.fixture(autouse=True)
def unblocked(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def older(postgres: Mapping[str, str]) -> Iterator[dict[str, str]]:
    with database(postgres, DUMPS[0]) as urls:
        yield urls


def environment(urls: Mapping[str, str]) -> dict[str, str]:
    web, sandbox, smtp = (str(port) for port in free_ports(3))
    ours = {"DATABASE_URL": urls["runtime"], "DATABASE_OWNER_URL": urls["owner"]}
    return {**ours, "PORT": web, "SANDBOX_PORT": sandbox, "SANDBOX_SMTP_PORT": smtp}


def is_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


def say(url: str, statement: str) -> None:
    with psycopg.connect(url) as link:
        link.execute(statement.encode())


@pytest.mark.processes
@pytest.mark.parametrize("command", ["web", "worker"])
def test_an_older_database_is_not_served_before_it_is_migrated(
    older: dict[str, str], manage: Manage, command: str
) -> None:
    before = catalog(older["owner"])
    done = manage(command, env=environment(older))
    is_refused(done, "the database lacks", "migrations that this code needs", "manage.py migrate")
    assert difference(catalog(older["owner"]), before) == {}


@pytest.mark.processes
@pytest.mark.parametrize("command", ["web", "worker", "up", "migrate"])
def test_a_newer_database_is_neither_served_nor_migrated(older: dict[str, str], manage: Manage, command: str) -> None:
    say(older["owner"], NEWER)
    before = catalog(older["owner"])
    role = {"DURABLEAGENTS_DB_ROLE": "owner"} if command == "migrate" else {}
    done = manage(command, env=environment(older) | role)
    is_refused(done, "brought further by newer code", "runs.9999_of_the_next_release")
    assert difference(catalog(older["owner"]), before) == {}, "not even the rights"


@pytest.mark.processes
def test_an_empty_database_is_not_served(postgres: Mapping[str, str], manage: Manage) -> None:
    with database(postgres) as urls:
        for command in ("web", "worker"):
            is_refused(manage(command, env=environment(urls)), "the database lacks", "manage.py migrate")


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_up_brings_an_older_database_along_by_itself(older: dict[str, str], tmp_path: Path) -> None:
    own = Installation(tmp_path / "data")
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "master.key").write_text(MASTER_KEY)  # whoever moves a database moves its key
    try:
        own.up(DATABASE_URL=older["runtime"], DATABASE_OWNER_URL=older["owner"])
        eventually(own.is_ready, "ready on an older database")
        own.remember()
        with django_on(older["runtime"]):
            assert schema.misfit() is None
        assert own.stop()[0] == 0
    finally:
        own.clean()


def test_a_database_of_todays_make_fits(postgres: Mapping[str, str]) -> None:
    assert schema.refusal() is None


def test_whoever_may_not_read_what_was_migrated_is_told_how_to_be_allowed(older: dict[str, str]) -> None:
    say(older["owner"], "REVOKE ALL ON django_migrations FROM durableagents")
    with django_on(older["runtime"]):
        told = schema.misfit()
    assert told is not None and "DATABASE_OWNER_URL" in told and "\n" not in told
