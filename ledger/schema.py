"""Whether this code and its database are of one make: each knows every migration of the other.

An older database lacks what this code would write to; a newer one was changed by code that this one doesn't know, which
would misread what stands in it. Neither is served: a process that starts says so by name and ends. What runs already
goes on while `migrate` brings the database further, which is what lets an upgrade do without an outage
(docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Collection

from django.db import DEFAULT_DB_ALIAS, ProgrammingError, connection, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from ledger import privileges

Migration = tuple[str, str]
_NAMED = 3


def refusal() -> str | None:
    """Why this process must not serve, in one line, or None. Raises OperationalError while the database is away."""
    try:
        reason = misfit()
    finally:
        connection.close()
    if reason is not None:
        return reason
    role = privileges.refusal()
    return None if role is None else f"not in production: {role}"


def misfit() -> str | None:
    """What the database has that this code doesn't know, or else what it lacks. Raises OperationalError."""
    loader = MigrationLoader(None)
    try:
        applied = set(MigrationRecorder(connection).applied_migrations())
    except ProgrammingError as error:
        return (
            f"django_migrations can't be read ({str(error).splitlines()[0]}): "
            "run migrate, with DATABASE_OWNER_URL and DATABASE_URL both set"
        )
    if newer := _unknown(loader, applied):
        return _newer(newer)
    # A squashed migration counts as there when all that it stands for is.
    replaced = {old: new for new, m in loader.disk_migrations.items() for old in m.replaces}
    has = applied | {new for new, m in loader.disk_migrations.items() if m.replaces and set(m.replaces) <= applied}
    lacking = [key for key in loader.graph.nodes if key not in has and replaced.get(key) not in has]
    if not lacking:
        return None
    return (
        f"the database lacks {len(lacking)} migration{'s' * (len(lacking) > 1)} that this code needs "
        f"({_named(lacking)}): "
        "run DURABLEAGENTS_DB_ROLE=owner manage.py migrate (docs/operations.md, Upgrades and restarts)"
    )


def newer_than_this_code(alias: str = DEFAULT_DB_ALIAS) -> str | None:
    """What `migrate` asks before it touches anything: older code would take back rights that newer tables need
    withheld."""
    newer = _unknown(MigrationLoader(None), set(MigrationRecorder(connections[alias]).applied_migrations()))
    return _newer(newer) if newer else None


def _unknown(loader: MigrationLoader, applied: Collection[Migration]) -> list[Migration]:
    known = loader.disk_migrations.keys() | {old for m in loader.disk_migrations.values() for old in m.replaces}
    return [key for key in applied if key not in known]


def _newer(unknown: Collection[Migration]) -> str:
    return (
        f"the database was brought further by newer code: it has {_named(unknown)}, which this code doesn't know; "
        "run that code or newer, or restore a backup from before (docs/operations.md, Upgrades and restarts)"
    )


def _named(migrations: Collection[Migration]) -> str:
    names = [f"{app}.{name}" for app, name in sorted(migrations)]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
