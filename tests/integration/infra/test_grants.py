"""The runtime role owns nothing and can't rewrite history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest

from durableagents import grants
from tests.cases import each_case
from tests.conftest import database_urls


@pytest.fixture
def runtime(db: None, postgres: Mapping[str, str]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_urls(postgres)["runtime"], autocommit=True) as connection:
        yield connection


def existing(connection: psycopg.Connection[Any], names: frozenset[str]) -> list[str]:
    found = connection.execute("select tablename from pg_tables where tablename = any(%s)", [sorted(names)])
    return [row[0] for row in found]


def test_every_append_only_name_is_a_table(runtime: psycopg.Connection[Any]) -> None:
    assert sorted(existing(runtime, grants.append_only())) == sorted(grants.append_only())


@each_case("table", sorted(grants.append_only()))
@each_case("verb", ["delete from {}", "truncate {}", "drop table {}", "alter table {} disable trigger all"])
def test_runtime_role_cannot_take_facts_away(runtime: psycopg.Connection[Any], table: str, verb: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute(verb.format(table))


@each_case("table", sorted(grants.append_only()))
def test_runtime_role_cannot_change_facts(runtime: psycopg.Connection[Any], table: str) -> None:
    column = runtime.execute(
        "select column_name from information_schema.columns where table_name = %s limit 1", [table]
    ).fetchone()
    assert column is not None
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute(f'update {table} set "{column[0]}" = "{column[0]}"')


@each_case(
    "statement",
    [
        "truncate auth_user",
        "create table mine (a int)",
        "create function mine() returns int language sql as 'select 1'",
        "set session_replication_role = replica",
        "insert into django_migrations (app, name, applied) values ('x', 'y', now())",
    ],
)
def test_runtime_role_has_no_say_over_the_schema(runtime: psycopg.Connection[Any], statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute(statement)


EVERYTHING = sorted({*grants.append_only(), *grants.frozen(), *grants.read_only()})


@each_case("table", EVERYTHING)
@each_case("verb", ["delete from {}", "delete from {} where false", "truncate {}", "truncate {} cascade"])
def test_runtime_role_takes_no_row_of_the_record_away(runtime: psycopg.Connection[Any], table: str, verb: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute(verb.format(table))


@each_case(("table", "column"), [(t, c) for t, columns in sorted(grants.frozen().items()) for c in sorted(columns)])
def test_runtime_role_changes_nothing_that_a_row_says_forever(
    runtime: psycopg.Connection[Any], table: str, column: str
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute(f'update {table} set "{column}" = "{column}"')


def test_runtime_role_changes_everything_else_about_it(runtime: psycopg.Connection[Any]) -> None:
    """A column added later may change, unless it is named."""
    for table, frozen in grants.frozen().items():
        columns = {
            row[0]
            for row in runtime.execute(
                "select column_name from information_schema.columns where table_name = %s", [table]
            )
        }
        assert frozen < columns
        for column in columns - frozen:
            runtime.execute(f'update {table} set "{column}" = "{column}" where false')
        runtime.execute(f"select 1 from {table} where false for update")


def test_every_table_is_either_the_record_or_known_not_to_be(runtime: psycopg.Connection[Any]) -> None:
    """A new table needs a choice of rights: by default injected SQL could empty it."""
    ours = runtime.execute(
        "select tablename from pg_tables where tablename ~ '^(ledger|runs|approvals|encryption|large_values|reports|"
        "restore_hold|retention|seals)_'"
    )
    passing = {"runs_idempotencyrecord", "runs_process", "runs_searchterm", "runs_served", "runs_sweep"}
    passing |= {"runs_budgetdefault"}  # the next run's default; each run keeps its own in its journal
    passing |= {"runs_logline", "runs_telling"}  # texts for people, outside the chain
    passing |= {"runs_listener", "runs_overheard"}  # live model output until it is recorded
    passing |= {"runs_limit", "runs_limitline", "runs_permit"}  # current values; the acts show who set them
    passing |= {"runs_haltseen", "runs_held", "runs_stood"}  # derived from the halts, and computed again
    passing |= {"runs_cachedread"}  # coded row by row, and may be deleted at any time
    passing |= {"seals_witness"}  # when each is tried next
    passing |= {"ledger_verificationjob", "large_values_collection"}  # progress of what can be done again
    passing |= {"reports_detectorplace", "reports_pendingcheck", "retention_pending"}  # likewise
    passing |= {"restore_hold_mark", "restore_hold_voucher"}  # a wrong mark holds, or is one second's
    # Notices expire and grant no right; the acts show who set a preference.
    passing |= {"approvals_notice", "approvals_delivery", "approvals_preference"}
    assert {row[0] for row in ours} - {*EVERYTHING} == passing


def test_runtime_role_owns_nothing(runtime: psycopg.Connection[Any]) -> None:
    owned = runtime.execute("select count(*) from pg_class where pg_get_userbyid(relowner) = current_user")
    assert owned.fetchone() == (0,)


def test_runtime_role_reads_and_writes_ordinary_tables(runtime: psycopg.Connection[Any]) -> None:
    runtime.execute("begin")
    runtime.execute("insert into auth_group (name) values ('here for a moment')")
    runtime.execute("update auth_group set name = 'changed' where name = 'here for a moment'")
    assert runtime.execute("delete from auth_group where name = 'changed'").rowcount == 1
    runtime.execute("rollback")


def test_runtime_role_gives_up_locks_and_idle_transactions(runtime: psycopg.Connection[Any]) -> None:
    items = [
        runtime.execute(f"show {name}").fetchone() for name in ("idle_in_transaction_session_timeout", "lock_timeout")
    ]
    assert items == [("5s",), ("2s",)]
