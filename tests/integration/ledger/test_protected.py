"""Every protected table: a change by SQL without the key has no effect, and verification names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, models, transaction
from psycopg import errors

from durableagents.models import OwnTag
from ledger.clock import database_now
from ledger.models import ActRecord, Coded, RowCode
from ledger.protected import ChangedOutside, Protected, check, is_changed_outside, registry, seal
from ledger.verification.registers import protected_rows
from runs.models import BudgetDefault, Price

pytestmark = pytest.mark.django_db
# What a table's constraints require of a row beyond its columns' types.
FITTING: dict[str, dict[str, Any]] = {
    BudgetDefault._meta.label: {"agent": "x", "tag": ""},
    "bulk.Batch": {"ended_at": None},
    "notifications.Channel": {"kinds": ["approval"], "ended_at": None},
    "notifications.Device": {"ended_at": None},
    OwnTag._meta.label: {"taken_for": "x"},
    "schedules.Schedule": {"is_paused": False, "stopped": "", "deleted_at": None},
}
# Columns outside a row's own code: they grant nothing.
VALUES: dict[str, Callable[[], Any]] = {
    "TextField": lambda: "x",
    "CharField": lambda: "x",
    "EmailField": lambda: "x@example.org",
    "BooleanField": lambda: True,
    "DateTimeField": database_now,
    "JSONField": lambda: {"steps": 1},
    "BinaryField": lambda: b"12345678",
    "DateField": lambda: database_now().date(),
    "ArrayField": list,
    "UUIDField": uuid4,
}
REFUSALS = (errors.InsufficientPrivilege, errors.IntegrityError, errors.RaiseException)
OTHER = {
    "TextField": "\"{}\" || 'x'",
    "CharField": "\"{}\" || 'x'",
    "EmailField": "\"{}\" || 'x'",
    "BooleanField": 'NOT "{}"',
    "DateTimeField": "coalesce(\"{}\", now()) + interval '1 hour'",
    "JSONField": "'{{\"y\": 2}}'::jsonb",
    "BinaryField": 'sha256("{}")',
    "UUIDField": "gen_random_uuid()",
    "ArrayField": "array_append(\"{}\", 'x')",
}


def kind_of(column: Any) -> str:
    return str((column.target_field if column.is_relation else column).get_internal_type())


def other(column: models.Field[Any, Any]) -> str:
    return OTHER.get(kind_of(column), '"{}" + 1').format(column.column)


def filled(model: type[models.Model], **given: Any) -> Any:
    row = model(**FITTING.get(model._meta.label, {}) | given)
    for column in model._meta.concrete_fields:
        is_set = column.attname in given or column.name in FITTING.get(model._meta.label, {}) or column.has_default()
        if is_set or isinstance(column, models.AutoField):
            continue
        value = VALUES.get(kind_of(column))
        known = column.is_relation and column.related_model._base_manager.first()
        setattr(row, column.attname, known.pk if known else 1 if value is None else value())
    return row


def sample(model: type[models.Model], **given: Any) -> Any:
    row = filled(model, **given)
    if isinstance(row, Coded):
        row.seal()
    row.save()
    return row


def protected_sample(protected: Protected) -> Any:
    """Return a row with one row in each further table that its code covers."""
    row = sample(protected.model)
    for table, column in protected.holds:
        model = next(each for each in apps.get_models(include_auto_created=True) if each._meta.db_table == table)
        model._base_manager.bulk_create([filled(model, **{column: row.pk})])
    seal(protected, row.pk)
    row.refresh_from_db()
    assert not is_changed_outside(protected, row.pk) and protected_rows().problems == []
    return row


def changes(protected: Protected, row: Any) -> Iterator[str]:
    """Yield SQL that changes a row in every way that its code covers."""
    table, key = protected.table, f"\"{protected.key}\"::text = '{row.pk}'"
    columns = protected.model._meta.concrete_fields
    free = protected.model.FREE if issubclass(protected.model, Coded) else protected.free
    yield from (
        f'UPDATE {table} SET "{each.column}" = {other(each)} WHERE {key}'
        for each in columns
        if each.column not in free and not each.primary_key
    )
    constraints = [x for x in protected.model._meta.constraints if isinstance(x, models.UniqueConstraint)]
    unique = {"username", "name"} | {name for each in constraints for name in each.fields}
    differing = [each for each in columns if each.unique or each.name in unique]
    pairs = ", ".join(f"'{each.column}', {other(each)}" for each in differing)
    copy = f"jsonb_populate_record(NULL::{table}, to_jsonb(t) || jsonb_build_object({pairs}))"
    yield f"INSERT INTO {table} SELECT ({copy}).* FROM {table} t WHERE {key}"
    yield from (f"DELETE FROM {part} WHERE {column} = {row.pk}" for part, column in protected.holds)
    yield f"DELETE FROM {table} WHERE {key}"


@contextmanager
def intruder() -> Iterator[Any]:
    """Return a cursor with the application's database rights; roll back in the end."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {settings.DURABLEAGENTS_RUNTIME_ROLE or 'durableagents'}")
        try:
            yield cursor
        finally:
            transaction.set_rollback(True)


def outcome(protected: Protected, row: Any, sql: str) -> str:
    """Return what becomes of a change by SQL: refused, found, or what went wrong."""
    with transaction.atomic():
        try:
            with intruder() as cursor:
                cursor.execute(sql)
                cursor.execute("RESET ROLE")
                problems = "\n".join(protected_rows().problems)
                is_itself = not sql.startswith("INSERT")
                if is_itself and not is_changed_outside(protected, row.pk):
                    return f"it counts: {sql}"
                return "found" if f"({protected.table} " in problems else f"nothing names it: {sql}"
        except DatabaseError as error:
            return "refused" if isinstance(error.__cause__, REFUSALS) else f"{error}: {sql}"


def test_sql_changes_of_protected_rows_grant_nothing_and_are_named() -> None:
    outcomes: dict[str, list[str]] = {}
    for protected in registry.values():
        with transaction.atomic():
            row = protected_sample(protected)
            outcomes[protected.table] = [outcome(protected, row, sql) for sql in changes(protected, row)]
            transaction.set_rollback(True)
    wrong = [each for found in outcomes.values() for each in found if each not in ("found", "refused")]
    assert wrong == []
    assert {table for table, found in outcomes.items() if "found" not in found} == set()
    assert outcomes["auth_user"].count("found") >= 14


def test_codes_can_neither_be_changed_nor_repeated_nor_made() -> None:
    row = sample(Price)
    code = RowCode.objects.get(table_name="runs_price", key=str(row.pk))
    for sql in (
        "UPDATE ledger_rowcode SET state = ''",
        "UPDATE ledger_rowcode SET n = n + 2",
        "UPDATE ledger_rowcode SET n = n + 1, key = key || '0'",
        "DELETE FROM ledger_rowcode",
        "INSERT INTO ledger_rowcode SELECT table_name, key, n, state, code FROM ledger_rowcode",
        "INSERT INTO ledger_rowcode SELECT table_name, key || '0', n + 1, state, code FROM ledger_rowcode",
    ):
        with pytest.raises(DatabaseError), intruder() as cursor:
            cursor.execute(sql)
    of_prices = "table_name = 'runs_price'"
    for n, key, sql in (
        (2, str(row.pk), f"UPDATE ledger_rowcode SET n = 2, state = %s, code = %s WHERE {of_prices} AND key = %s"),
        (1, "999", "INSERT INTO ledger_rowcode (n, table_name, state, code, key) VALUES (1, 'runs_price', %s, %s, %s)"),
    ):
        with intruder() as cursor:
            cursor.execute(sql, [code.state, bytes(code.code), key])
            cursor.execute("RESET ROLE")
            assert f"code {n} of runs_price {key} was not written with" in "\n".join(protected_rows().problems)


def test_former_state_cannot_be_put_back_with_its_code() -> None:
    row = sample(BudgetDefault, agent="writer", budget={"steps": 5})
    code = RowCode.objects.get(table_name="runs_budgetdefault", key=str(row.pk))
    row.budget = {"steps": 1}
    row.save()
    assert RowCode.objects.filter(table_name="runs_budgetdefault").count() == 1
    renew = "UPDATE ledger_rowcode SET n = %s, state = %s, code = %s WHERE table_name = 'runs_budgetdefault'"
    with pytest.raises(DatabaseError), intruder() as cursor:
        cursor.execute(renew, [code.n, code.state, bytes(code.code)])
    with intruder() as cursor:
        cursor.execute("UPDATE runs_budgetdefault SET budget = '{\"steps\": 5}'")
        cursor.execute(renew, [3, code.state, bytes(code.code)])
        cursor.execute("RESET ROLE")
        assert is_changed_outside(registry["runs_budgetdefault"], row.pk) and len(protected_rows().problems) == 2


def test_confirming_a_row_lets_it_count_and_is_on_record() -> None:
    row = sample(BudgetDefault, agent="writer", budget={"steps": 5})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_budgetdefault SET budget = '{\"steps\": 9}' WHERE id = %s", [row.pk])
    protected = registry["runs_budgetdefault"]
    with pytest.raises(ChangedOutside, match=f"manage.py ledger confirm runs_budgetdefault {row.pk}"):
        check(protected, row.pk)
    with pytest.raises(ChangedOutside):  # nor does the application code it by changing another column
        BudgetDefault.objects.get(pk=row.pk).save()
    for table, key, reason in (
        ("runs_run", "1", "x"),
        ("runs_budgetdefault", "404", "Checked."),
        ("runs_budgetdefault", "x", "y"),
    ):
        with pytest.raises((CommandError, SystemExit)):
            call_command("ledger", "confirm", table, key, "--reason", reason)
    call_command("ledger", "confirm", "runs_budgetdefault", str(row.pk), "--reason", "Set during the outage.")
    check(protected, row.pk)
    record = ActRecord.objects.get(action="row_confirm")
    assert record.by.startswith("os:") and record.justification == "Set during the outage."
    assert protected_rows().problems == []
