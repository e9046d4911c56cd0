"""Migrations, and the SQL functions, types and triggers that `migrate` installs from `<app>/sql/*.sql`."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from durableagents.apps import install_definitions
from durableagents.env import EnvironmentProblem
from ledger import definitions, schema
from ledger.clock import database_now
from ledger.protocol import PROTOCOL
from runs.models import Process
from tests.conftest import CHECKOUT
from tests.shape import left_behind, shape

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("db")]
FILES = sorted(path for path in CHECKOUT.glob("*/sql/*.sql"))


def change(monkeypatch: pytest.MonkeyPatch, **texts: str | None) -> None:
    """Let the files define these functions with another text, or not at all."""
    changed = dict(definitions.definitions())
    for name, text in texts.items():
        key = f"FUNCTION {name}"
        if text is None:
            del changed[key]
        else:
            known = changed.get(key) or replace(changed["FUNCTION runs_lane_of"], name=name)
            changed[key] = replace(known, text=text)
    monkeypatch.setattr(definitions, "definitions", lambda: changed)


def function(name: str) -> str:
    return definitions.definitions()[f"FUNCTION {name}"].text


def test_models_and_migrations_agree() -> None:
    output = StringIO()
    call_command("makemigrations", "--check", "--dry-run", stdout=output)
    assert output.getvalue() == "No changes detected\n"


def test_there_is_one_baseline() -> None:
    assert len(list(CHECKOUT.glob("*/migrations/0*.py"))) <= 12


def test_a_second_migrate_changes_nothing() -> None:
    before = shape()
    assert definitions.differing() == [] == definitions.install()
    assert left_behind(before, shape()) == []


def test_database_of_other_code_is_refused_with_what_to_do() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('runs', '0123_other', now())")
        newer = "upgraded by newer code: it has runs.0123_other, .* restore a backup from before"
        with pytest.raises(EnvironmentProblem, match=newer):
            call_command("migrate", verbosity=0)
        assert re.search(newer, schema.misfit() or "")
        cursor.execute("DROP TABLE ledger_definition")
        older = r"made before the first migrations of 0\.1\.0 \(it has runs\.0123_other\) .* start with a new database"
        with pytest.raises(EnvironmentProblem, match=older):
            call_command("migrate", verbosity=0)
        assert re.search(older, schema.misfit() or "")
        transaction.set_rollback(True)


def test_code_starts_one_release_behind_its_database_and_not_two(monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        monkeypatch.setattr(schema, "PROTOCOL", PROTOCOL - 1)
        cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('runs', '0123_other', now())")
        change(monkeypatch, runs_has_outcome=function("runs_has_outcome").replace("SELECT EXISTS", "SELECT NOT EXISTS"))
        assert schema.misfit() is None, "what is new in the database is the next release's"
        cursor.execute("DELETE FROM ledger_definition WHERE name = 'FUNCTION runs_is_undone'")
        assert "needs (FUNCTION runs_is_undone): run newer code" in (schema.misfit() or "")
        cursor.execute("DELETE FROM django_migrations WHERE app = 'runs' AND name = '0003_protocol'")
        assert "lacks 1 migration that this code needs (runs.0003_protocol)" in (schema.misfit() or "")
        monkeypatch.setattr(schema, "PROTOCOL", PROTOCOL - 2)
        assert re.search(f"too old for the database: .* upgraded to {PROTOCOL}: run newer", schema.misfit() or "")
        transaction.set_rollback(True)


def test_migrate_waits_for_the_end_of_processes_two_releases_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic():
        now = database_now()
        process = Process.objects.create(
            id=uuid4(),
            kind="worker",
            host="alpha",
            boot="b",
            pid=7,
            born_ticks=1,
            started_at=now,
            last_heartbeat_at=now,
        )
        monkeypatch.setattr(schema, "PROTOCOL", PROTOCOL + 1)
        assert schema.migrate_refusal() is None
        Process.objects.filter(pk=process.pk).update(protocol=PROTOCOL - 1)
        assert r"two releases behind still run (worker 7 on alpha)" in (schema.migrate_refusal() or "")
        Process.objects.filter(pk=process.pk).update(last_heartbeat_at=now - timedelta(minutes=1))
        assert schema.migrate_refusal() is None
        transaction.set_rollback(True)


def test_a_changed_definition_is_installed_and_refuses_processes_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = function("runs_has_outcome").replace("SELECT EXISTS", "SELECT NOT EXISTS")
    with transaction.atomic():
        change(monkeypatch, runs_has_outcome=changed, runs_is_undone=None)
        assert "FUNCTION runs_has_outcome, FUNCTION runs_is_undone" in (schema.misfit() or "")
        assert definitions.install() == ["FUNCTION runs_has_outcome", "FUNCTION runs_is_undone"]
        assert schema.misfit() is None
        with connection.cursor() as cursor:
            cursor.execute("SELECT prosrc LIKE '%%NOT EXISTS%%' FROM pg_proc WHERE proname = 'runs_has_outcome'")
            assert cursor.fetchall() == [(True,)]
            cursor.execute("SELECT count(*) FROM pg_proc WHERE proname = 'runs_is_undone'")
            assert cursor.fetchall() == [(0,)]
        transaction.set_rollback(True)


def test_definitions_that_were_dropped_with_their_table_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ["FUNCTION runs_pool_notice", "TRIGGER other ON other_table", "TYPE other"]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DROP TABLE runs_poolmeter CASCADE")
        cursor.executemany("INSERT INTO ledger_definition VALUES (%s, '')", [(key,) for key in gone[1:]])
        change(monkeypatch, runs_pool_notice=None)
        assert definitions.install() == gone
        assert definitions.differing() == []
        transaction.set_rollback(True)


def test_a_changed_signature_is_refused_by_name_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = function("runs_has_outcome")
    for changed in (
        text.replace("p_attempt int)", "p_attempt bigint)"),
        text.replace("RETURNS boolean", "RETURNS int").replace("SELECT EXISTS (", "SELECT count(*)::int FROM ("),
        text.replace("p_slot text", "p_place text"),
    ):
        before = shape()
        with monkeypatch.context() as patch:
            change(patch, runs_has_outcome=changed)
            with pytest.raises(CommandError, match=r"runs_has_outcome has a different signature: .* needs a new name"):
                install_definitions(using="default")
        assert left_behind(before, shape()) == []


def test_a_statement_of_another_kind_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.sql"
    path.write_text("-- A comment.\nDROP TABLE runs_run;\n")
    with pytest.raises(ValueError, match=r"bad\.sql:2: expected CREATE TYPE"):
        list(definitions.parse(path))


def test_every_function_has_a_comment() -> None:
    declared = re.compile(r"^CREATE OR REPLACE FUNCTION (\w+)\(", re.M)
    bare = []
    for path in FILES:
        text = path.read_text()
        for found in declared.finditer(text):
            if not text[: found.start()].rstrip().splitlines()[-1].startswith("--"):
                bare.append(f"{path.name}: {found[1]}")
    assert FILES and bare == []


def test_no_function_reads_the_time_of_the_transactions_start() -> None:
    """`now()` can be older than a lock just won: deadlines and leases read `clock_timestamp()`."""
    times = re.compile(r"\b(now\(\)|current_timestamp|localtimestamp|transaction_timestamp)\b", re.I)
    assert [path.name for path in FILES if times.search(re.sub(r"--.*", "", path.read_text()))] == []


def test_the_bodies_of_all_functions_are_valid() -> None:
    """`migrate` installs them unchecked because they call each other."""
    functions = [each.text for each in definitions.definitions().values() if each.kind == "FUNCTION"]
    assert functions
    with transaction.atomic(), connection.cursor() as cursor:
        for text in functions:
            cursor.execute(text)
        transaction.set_rollback(True)
