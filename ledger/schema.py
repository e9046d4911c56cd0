"""Compare the database with this code: its protocol, migrations and SQL definitions.

A process starts on a database of its own release or of the next one; running processes continue while `migrate` runs
(docs/reference/upgrading.md).
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from django.db import DEFAULT_DB_ALIAS, ProgrammingError, connection, connections
from django.db.migrations.loader import MigrationLoader

from ledger import definitions, privileges
from ledger.protocol import PROTOCOL

Migration = tuple[str, str]
_NAMED = 3
_CONTRIB = "durableagents.contrib"
# Finds live processes of releases that the migrated database won't support. A database of protocol 1 lacks the column.
_TOO_OLD = """
    SELECT kind, host, pid FROM runs_process
    WHERE ended_at IS NULL AND kind IN ('worker', 'web') AND protocol < %s
      AND last_heartbeat_at > clock_timestamp() - interval '15 seconds'
    ORDER BY kind, host, pid"""
_SEE = "(docs/reference/upgrading.md)"
_MIGRATE = f"run DURABLEAGENTS_DB_ROLE=owner manage.py migrate {_SEE}"


def refusal() -> str | None:
    """Return why this process must not serve, in one line, or None. Raises OperationalError."""
    try:
        reason = misfit()
    finally:
        connection.close()
    return privileges.refusal() if reason is None else reason


def misfit() -> str | None:
    """Return how the database differs from this code, first in migrations, then in SQL. Raises OperationalError."""
    try:
        there = protocol_of(DEFAULT_DB_ALIAS)
        if there > PROTOCOL + 1:
            return (
                f"this code is too old for the database: it has protocol {PROTOCOL} and runs on {PROTOCOL} and "
                f"{PROTOCOL + 1}, but the database was upgraded to {there}: run newer code {_SEE}"
            )
        loader = MigrationLoader(connection)
        if there <= PROTOCOL and (unknown := _unknown(loader)):
            return _unfit(unknown, DEFAULT_DB_ALIAS)
        if lacking := _lacking(loader):
            return (
                f"the database lacks {len(lacking)} migration{'s' * (len(lacking) > 1)} that this code needs "
                f"({_named(lacking)}): {_MIGRATE}"
            )
        differing = definitions.missing() if there > PROTOCOL else definitions.differing()
        if differing and there > PROTOCOL:
            return f"the next release removed SQL that this code needs ({_few(differing)}): run newer code {_SEE}"
        if differing:
            return f"the database's SQL differs from this code's ({_few(differing)}): {_MIGRATE}"
    except ProgrammingError as error:
        return (
            f"the database's schema can't be read ({str(error).splitlines()[0]}): "
            "run migrate, with DATABASE_OWNER_URL and DATABASE_URL both set"
        )
    return None


def is_migrated(alias: str = DEFAULT_DB_ALIAS) -> bool:
    """Return whether the database has every migration of this code."""
    return not _lacking(MigrationLoader(connections[alias]))


def protocol_of(alias: str = DEFAULT_DB_ALIAS) -> int:
    """Return the protocol that the database was migrated to; 0 for an empty one. Raises OperationalError."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT to_regclass('ledger_definition') IS NULL, to_regprocedure('ledger_protocol()') IS NULL")
        is_empty, is_first = cursor.fetchone()
        if is_empty or is_first:
            return 0 if is_empty else 1
        cursor.execute("SELECT ledger_protocol()")
        return int(cursor.fetchone()[0])


def migrate_refusal(alias: str = DEFAULT_DB_ALIAS) -> str | None:
    """Return why `migrate` must not touch the database, or None.

    Older code would grant rights on newer tables, and processes two releases older would call functions that this code
    no longer has.
    """
    if unknown := _unknown(MigrationLoader(connections[alias])):
        return _unfit(unknown, alias)
    if 1 < protocol_of(alias) < PROTOCOL and (behind := _too_old_processes(alias)):
        return (
            f"processes that are two releases behind still run ({_few(behind)}): upgrade by one release at a time, "
            f"or stop them first {_SEE}"
        )
    return None


def _too_old_processes(alias: str) -> list[str]:
    with connections[alias].cursor() as cursor:
        cursor.execute(_TOO_OLD, [PROTOCOL - 1])
        return [f"{kind} {pid} on {host}" for kind, host, pid in cursor.fetchall()]


def _lacking(loader: MigrationLoader) -> list[Migration]:
    return [key for key in loader.graph.nodes if key not in loader.applied_migrations]


def _unknown(loader: MigrationLoader) -> list[Migration]:
    known = loader.disk_migrations.keys() | {old for m in loader.disk_migrations.values() for old in m.replaces}
    unknown = [key for key in loader.applied_migrations if key not in known and _need(loader, *key) != ""]
    brought = _brought() if unknown else set()
    return [key for key in unknown if key[0] not in brought]


def _brought() -> set[str]:
    """Return the library apps that removable apps depend on, as declared in their first migrations."""
    labels = [each.name for each in iter_modules(import_module(_CONTRIB).__path__)]
    return {app for label in labels for app in getattr(_first_migration(label), "brings", ())}


def _first_migration(label: str) -> Any:
    """Return the first migration of a removable app; None if this code has no such app."""
    try:
        return import_module(f"{_CONTRIB}.{label}.migrations.0001_initial").Migration
    except ModuleNotFoundError:
        return None


def _need(loader: MigrationLoader, label: str, name: str) -> str | None:
    """Return why an app may not be removed from INSTALLED_APPS; empty if it may be.

    The app's first migration declares the reason. Return None if the migration belongs to an app that is not part of
    this code.
    """
    try:
        import_module(f"{_CONTRIB}.{label}.migrations.{name}")
    except ModuleNotFoundError:
        return None
    first = _first_migration(label)
    if not getattr(first, "is_removable", False):
        return "the database was created with it"
    condition, reason = getattr(first, "needed_while", ("false", ""))
    assert loader.connection is not None
    with loader.connection.cursor() as cursor:
        cursor.execute(f"SELECT {condition}")
        return reason if cursor.fetchone()[0] else ""


def _unfit(unknown: Collection[Migration], alias: str) -> str:
    loader = MigrationLoader(connections[alias])
    needs = {f"{_CONTRIB}.{label}": why for label, name in unknown if (why := _need(loader, label, name))}
    if needs:
        named = [f"{app} ({why})" for app, why in sorted(needs.items())]
        return f"INSTALLED_APPS lacks {_few(named)}, which the database needs: add it again"
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT to_regclass('ledger_definition') IS NULL")
        (is_older,) = cursor.fetchone()
    if is_older:  # the first migrations of 0.1.0 create that table
        return (
            f"the database was made before the first migrations of 0.1.0 (it has {_named(unknown)}) and can't be "
            f"upgraded: start with a new database {_SEE}"
        )
    return (
        f"the database was upgraded by newer code: it has {_named(unknown)}, which this code doesn't know; "
        f"run that code or newer, or restore a backup from before {_SEE}"
    )


def _named(migrations: Collection[Migration]) -> str:
    return _few([f"{app}.{name}" for app, name in sorted(migrations)])


def _few(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
