"""Events, ledger entries, decisions, override records and checkpoints can't be changed by anyone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import Error, connection, transaction

from ledger import events as e
from ledger.append import append, locked_head, override
from ledger.errors import NotFound
from ledger.models import Event, LedgerEntry, OverrideRecord
from runs.engine.journal import Entry
from tests.cases import each_case
from tests.conftest import database_urls
from tests.integration.ledger.conftest import Journal
from tests.tampering import as_stored
from tests.world import OLGA, SHOP

pytestmark = pytest.mark.django_db
TABLES = [
    "ledger_event",
    "ledger_ledgerentry",
    "ledger_overriderecord",
    "ledger_actrecord",
    "ledger_accountrecord",
    "approvals_decision",
    "runs_checkpoint",
    "runs_incident",
]


@pytest.fixture
def written(journal: Journal) -> UUID:
    run_id = journal()
    with transaction.atomic():
        head = locked_head(run_id)
        override(
            head, "cancel", by=OLGA, justification="because", before={"state": "running"}, after={"state": "cancelled"}
        )
    return run_id


OTHER = as_stored(OverrideRecord, justification="other")
ATTEMPTS: dict[str, Callable[[UUID], Any]] = {
    "update by query": lambda run_id: Event.objects.filter(run_id=run_id).update(kind="Another"),
    "save": lambda run_id: Event.objects.get(run_id=run_id, seq=1).save(),
    "delete by query": lambda run_id: Event.objects.filter(run_id=run_id).delete(),
    "delete one": lambda run_id: Event.objects.get(run_id=run_id, seq=1).delete(),
    "update an entry": lambda run_id: LedgerEntry.objects.filter(run_id=run_id).update(fact="failed"),
    "save an entry": lambda run_id: LedgerEntry.objects.filter(run_id=run_id)[0].save(),
    "delete an entry": lambda run_id: LedgerEntry.objects.filter(run_id=run_id).delete(),
    "update a record": lambda run_id: OverrideRecord.objects.filter(run_id=run_id).update(
        **as_stored(OverrideRecord, justification="other")
    ),
    "delete a record": lambda run_id: OverrideRecord.objects.filter(run_id=run_id).delete(),
    "bulk update": lambda run_id: OverrideRecord.objects.bulk_update(
        OverrideRecord.objects.filter(run_id=run_id), ["by"]
    ),
}


@each_case("how", ATTEMPTS)
def test_the_orm_can_not_change_what_happened(written: UUID, how: str) -> None:
    before = everything(written)
    with pytest.raises(Error), transaction.atomic():
        ATTEMPTS[how](written)
    assert everything(written) == before


def everything(run_id: UUID) -> list[Any]:
    return [
        list(model.objects.filter(run_id=run_id).order_by("pk").values())
        for model in (Event, LedgerEntry, OverrideRecord)
    ]


@each_case("table", TABLES[:3])
@each_case(
    "statement",
    [
        "UPDATE {} SET run_id = run_id",
        "DELETE FROM {}",
        "TRUNCATE {}",
        "TRUNCATE {} CASCADE",
        "WITH gone AS (DELETE FROM {} RETURNING *) SELECT * FROM gone",
        "MERGE INTO {0} t USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE",
        "INSERT INTO {0} SELECT * FROM {0} ON CONFLICT DO NOTHING; DELETE FROM {0}",
    ],
)
def test_raw_sql_can_not_change_what_happened_not_even_as_the_owner(written: UUID, table: str, statement: str) -> None:
    before = everything(written)
    with pytest.raises(Error, match=r"(?i)append|truncate"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement.format(table))
    assert everything(written) == before


def test_every_append_only_table_has_both_guards() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = "
            "t.tgrelid WHERE NOT t.tgisinternal"
        )
        found = [(table, name) for table, name, enabled in cursor.fetchall() if enabled == "O"]
    for table in TABLES:
        names = " ".join(name for t, name in found if t == table)
        assert "append_only" in names and "no_truncate" in names, table


# --- the runtime role ---


@pytest.fixture
def runtime(db: None, postgres: Mapping[str, str]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_urls(postgres)["runtime"], autocommit=True) as link:
        yield link


@each_case("table", TABLES)
@each_case(
    "statement",
    [
        "UPDATE {} SET {column} = {column}",
        "DELETE FROM {}",
        "TRUNCATE {}",
        "ALTER TABLE {} DISABLE TRIGGER ALL",
        "CREATE RULE nothing AS ON DELETE TO {} DO INSTEAD NOTHING",
        "SET session_replication_role = replica",
    ],
)
def test_the_role_that_everything_runs_as_has_no_right_to(
    runtime: psycopg.Connection[Any], table: str, statement: str
) -> None:
    column = "at"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runtime.execute(statement.format(table, column=column))


@pytest.mark.django_db(transaction=True)
def test_the_runtime_role_can_append(journal: Journal, runtime: psycopg.Connection[Any]) -> None:
    run_id = journal()
    runtime.execute(
        "SELECT ledger_append_as(%s, 'x', ARRAY[ROW('RunPaused', NULL, 0, NULL, '{}'::bytea, "
        "NULL, sha256(''))]::ledger_line[], "
        "ARRAY[]::ledger_fact[])",
        [run_id],
    )
    assert Event.objects.filter(run_id=run_id).count() == 8


# --- refused by constraints ---


def test_a_second_intent_for_one_attempt_is_refused(journal: Journal) -> None:
    run_id = journal()
    again = Entry("0.1/2", 0, "pending", "order", "idempotent_with_key", key="k")
    with pytest.raises(Error, match="ledger_entry_one_intent_per_attempt"), transaction.atomic():
        append(run_id, e.RunPaused(by="x"), by=SHOP, entries=[again])
    assert Event.objects.filter(run_id=run_id).count() == 7, "the event that it rode with is not there either"
    append(run_id, e.RunPaused(by="x"), by=SHOP, entries=[Entry("0.1/2", 1, "pending", "order", "idempotent_with_key")])


@pytest.mark.parametrize(
    "event",
    [
        e.ToolInvoked(slot="0.1/2", tool="other", replay_class="pure", requested_hash="", executed_hash=""),
        e.ToolReturned(slot="0.1/2", tool="order"),
        e.ToolFailed(slot="0.1/2", tool="order", code="x", requested_hash=""),
        e.CallbackReceived(slot="0.1/2", tool="order"),
        e.ValueRead(slot="0.1/1", what="now"),
    ],
    ids=lambda event: event.KIND,
)
def test_a_second_fact_about_one_attempt_is_refused(journal: Journal, event: e.Event) -> None:
    run_id = journal()
    with pytest.raises(Error, match="ledger_event_one_fact_per_slot"), transaction.atomic():
        append(run_id, event, by=SHOP)
    assert Event.objects.filter(run_id=run_id).count() == 7


def test_nothing_is_appended_for_a_run_that_is_not_there() -> None:
    with pytest.raises(NotFound):
        locked_head(UUID(int=1))
    with pytest.raises(Error, match="does not exist"), transaction.atomic():
        append(UUID(int=1), e.RunPaused(by="x"), by=SHOP)
    assert not Event.objects.exists()


def test_several_events_are_one_commit_with_gapless_numbers(journal: Journal) -> None:
    run_id = journal()
    with pytest.raises(Error), transaction.atomic():
        append(run_id, e.RunPaused(by="x"), e.ToolReturned(slot="0.1/2", tool="order"), by=SHOP)
    assert append(run_id, e.RunPaused(by="x"), e.RunResumed(by="x", state="y"), by=SHOP) == 9
    assert list(Event.objects.filter(run_id=run_id).order_by("seq").values_list("seq", flat=True)) == list(range(1, 10))


def test_an_actor_is_named_on_every_entry(journal: Journal) -> None:
    run_id = journal()
    assert set(LedgerEntry.objects.filter(run_id=run_id).values_list("actor", flat=True)) == {SHOP.ref}
