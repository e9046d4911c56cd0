"""In production nothing serves under a database role that could rewrite the record."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest

from ledger.privileges import problem_of
from tests.conftest import CHECKOUT, database_urls


@pytest.fixture
def admin(db: None, postgres: Mapping[str, str]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_urls(postgres)["admin"]) as link:
        yield link
        link.rollback()


def asked(link: psycopg.Connection[Any]) -> str | None:
    def ask(statement: str, parameters: Sequence[Any]) -> Any:
        return link.execute(statement, parameters).fetchone()

    return problem_of(ask)


def test_the_runtime_role_may_serve(db: None, postgres: Mapping[str, str]) -> None:
    with psycopg.connect(database_urls(postgres)["runtime"]) as link:
        assert asked(link) is None


def test_a_superuser_may_not(admin: psycopg.Connection[Any]) -> None:
    assert "is a superuser" in str(asked(admin))


@pytest.mark.parametrize("how", ["as the owner", "as a member of the owner"])
def test_someone_who_may_become_the_owner_of_the_journal_may_not(admin: psycopg.Connection[Any], how: str) -> None:
    admin.execute("CREATE ROLE landlord; CREATE ROLE lodger; GRANT landlord TO lodger")
    admin.execute("ALTER TABLE ledger_event OWNER TO landlord")
    admin.execute("SET LOCAL ROLE landlord" if how == "as the owner" else "SET LOCAL ROLE lodger")
    text = str(asked(admin))
    assert "owns ledger_event" in text and "docs/how-to/postgresql-and-pgbouncer.md" in text and "\n" not in text


def production(env: Mapping[str, str], url: str) -> dict[str, str]:
    return {**env, "DURABLEAGENTS_ENV": "production", "DATABASE_URL": url, "DATABASE_OWNER_URL": ""}


def test_worker_and_web_refuse_to_start_in_production_as_superuser(
    process_env: dict[str, str], postgres: Mapping[str, str]
) -> None:
    env = production(process_env, database_urls(postgres)["admin"])
    web = ["uvicorn", "durableagents.server.asgi:application", "--port", env["PORT"], "--log-level", "warning"]
    commands: dict[str, tuple[list[str], Callable[[int], bool]]] = {
        "worker": ([str(CHECKOUT / "manage.py"), "worker"], lambda code: code == 2),
        "web": (["-m", *web], lambda code: code != 0),
        "check": ([str(CHECKOUT / "manage.py"), "check", "--deploy"], lambda code: code == 1),
    }
    for name, (command, is_right) in commands.items():
        done = subprocess.run(
            [sys.executable, *command], env=env, cwd=CHECKOUT, capture_output=True, text=True, timeout=60
        )
        assert is_right(done.returncode), (name, done.stderr)
        assert done.stderr.count("not in production: ") == 1 and "is a superuser" in done.stderr, name
        assert "Traceback" not in done.stderr, name


def test_migrate_under_the_runtime_role_names_the_two_settings(
    process_env: dict[str, str], postgres: Mapping[str, str]
) -> None:
    env = process_env | {"DATABASE_URL": postgres["runtime"].replace("@/durableagents?", "@/postgres?")}
    command = [sys.executable, str(CHECKOUT / "manage.py"), "migrate"]
    done = subprocess.run(command, env=env, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "DATABASE_OWNER_URL" in done.stderr and "DURABLEAGENTS_DB_ROLE=owner" in done.stderr
