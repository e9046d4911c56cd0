"""Each SQL file belongs to one migration, which brings exactly what the file says and can take it away again."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from tests.conftest import CHECKOUT

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("db")]
FILES = sorted(path for path in CHECKOUT.glob("*/sql/*.sql"))
PAIRS = {
    "ledger/sql/append.sql": "ledger.migrations.0002_sql",
    "runs/sql/signals.sql": "runs.migrations.0003_signals",
    "runs/sql/steps.sql": "runs.migrations.0002_sql",
}
_DECLARED = re.compile(r"CREATE OR REPLACE FUNCTION (\w+)\(")
_TYPES = re.compile(r"CREATE TYPE (\w+) AS")


def functions(prefix: str = "") -> dict[str, str]:
    """Our own functions in the database, by name: their definitions as the server tells them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT p.proname, pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang "
            "WHERE p.pronamespace = 'public'::regnamespace AND l.lanname IN ('plpgsql', 'sql') AND NOT p.proname LIKE '%%pgtrigger%%'"
        )
        rows = cursor.fetchall()
    assert len({name for name, _ in rows}) == len(rows), (
        "no overloads: an old signature would linger beside the new one"
    )
    return {name: body for name, body in rows if name.startswith(prefix)}


def migration(path: Path) -> Any:
    return importlib.import_module(PAIRS[str(path.relative_to(CHECKOUT))])


def test_every_sql_file_is_paired_with_a_migration() -> None:
    assert [str(path.relative_to(CHECKOUT)) for path in FILES] == sorted(PAIRS)
    for path in FILES:
        assert path.read_text() == migration(path).SQL


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_database_has_what_the_file_says(path: Path) -> None:
    declared = set(_DECLARED.findall(path.read_text()))
    before = functions()
    assert declared and declared <= set(before)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(path.read_text())
        assert functions() == before
        transaction.set_rollback(True)


def test_no_function_is_there_that_no_file_declares() -> None:
    declared = {name for path in FILES for name in _DECLARED.findall(path.read_text())}
    assert set(functions()) == declared


def test_taking_it_back_leaves_nothing_and_bringing_it_again_brings_the_same() -> None:
    before = functions()
    with transaction.atomic(), connection.cursor() as cursor:
        for path in sorted(FILES, reverse=True):  # runs stands on ledger
            cursor.execute(migration(path).UNDO)
        assert functions() == {}
        for path in FILES:
            for name in _TYPES.findall(path.read_text()):
                cursor.execute("SELECT to_regtype(%s)", [name])
                assert cursor.fetchone()[0] is None, name
        for path in FILES:
            cursor.execute(path.read_text())
        assert functions() == before
        transaction.set_rollback(True)


def test_the_models_and_the_migrations_agree() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_function_says_why_it_is_there(path: Path) -> None:
    """A comment stands before each, in prose: the race, the order of locks, the shape."""
    text = path.read_text()
    for found in _DECLARED.finditer(text):
        before = text[: found.start()].rstrip().splitlines()[-1]
        own_type = before.startswith(("END $$;", "$$;")) and found.group(1) == "runs_reply_of"
        assert before.startswith("--") or own_type, found.group(1)


def test_no_time_is_read_from_the_transactions_start() -> None:
    """`now()` can be older than a lock that was just won: deadlines and leases read `clock_timestamp()`."""
    for path in FILES:
        code = re.sub(r"--.*", "", path.read_text())
        assert not re.search(r"\b(now\(\)|current_timestamp|localtimestamp|transaction_timestamp)\b", code, re.I), (
            path.name
        )
