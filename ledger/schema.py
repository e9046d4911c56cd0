"""Compare the database with this code: its migrations and its SQL definitions. A process that finds a difference
refuses to start; running ones continue while `migrate` runs, so an upgrade needs no outage (docs/operations.md)."""

from __future__ import annotations

from collections.abc import Collection

from django.db import DEFAULT_DB_ALIAS, ProgrammingError, connection, connections
from django.db.migrations.loader import MigrationLoader

from ledger import definitions, privileges

Migration = tuple[str, str]
_NAMED = 3
_MIGRATE = "run DURABLEAGENTS_DB_ROLE=owner manage.py migrate (docs/operations.md, Upgrades and restarts)"


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
        loader = MigrationLoader(connection)
        if unknown := _unknown(loader):
            return _unfit(unknown, DEFAULT_DB_ALIAS)
        if lacking := _lacking(loader):
            return (
                f"the database lacks {len(lacking)} migration{'s' * (len(lacking) > 1)} that this code needs "
                f"({_named(lacking)}): {_MIGRATE}"
            )
        if differing := definitions.differing():
            return f"the database's SQL differs from this code's ({_first(differing)}): {_MIGRATE}"
    except ProgrammingError as error:
        return (
            f"the database's schema can't be read ({str(error).splitlines()[0]}): "
            "run migrate, with DATABASE_OWNER_URL and DATABASE_URL both set"
        )
    return None


def is_migrated(alias: str = DEFAULT_DB_ALIAS) -> bool:
    """Return whether the database has every migration of this code."""
    return not _lacking(MigrationLoader(connections[alias]))


def migrate_refusal(alias: str = DEFAULT_DB_ALIAS) -> str | None:
    """Return why `migrate` must not touch the database, or None: older code would grant rights on newer tables."""
    unknown = _unknown(MigrationLoader(connections[alias]))
    return _unfit(unknown, alias) if unknown else None


def _lacking(loader: MigrationLoader) -> list[Migration]:
    return [key for key in loader.graph.nodes if key not in loader.applied_migrations]


def _unknown(loader: MigrationLoader) -> list[Migration]:
    known = loader.disk_migrations.keys() | {old for m in loader.disk_migrations.values() for old in m.replaces}
    return [key for key in loader.applied_migrations if key not in known]


def _unfit(unknown: Collection[Migration], alias: str) -> str:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT to_regclass('ledger_definition') IS NULL")
        (is_older,) = cursor.fetchone()
    if is_older:  # the first migrations of 0.1.0 create that table
        return (
            f"the database was made before the first migrations of 0.1.0 (it has {_named(unknown)}) and can't be "
            "upgraded: start with a new database (docs/operations.md, Upgrades and restarts)"
        )
    return (
        f"the database was brought further by newer code: it has {_named(unknown)}, which this code doesn't know; "
        "run that code or newer, or restore a backup from before (docs/operations.md, Upgrades and restarts)"
    )


def _named(migrations: Collection[Migration]) -> str:
    return _first([f"{app}.{name}" for app, name in sorted(migrations)])


def _first(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
