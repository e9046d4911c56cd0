"""Install the SQL functions, types and triggers of `<app>/sql/*.sql`. Only the defaults of hooks may be redefined by
other apps."""

# The table `ledger_definition` holds the digest of every installed definition: only changed ones are replaced, and a
# process can detect that its database differs from its code. The runtime role may only read it
# (durableagents/grants.py).

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, ProgrammingError, connections, transaction
from django.db.backends.utils import CursorWrapper
from psycopg import errors

_SKIPPED = re.compile(r"(?:--[^\n]*|\s)+")
_TYPE = re.compile(r"CREATE TYPE (?P<name>\w+) AS [^;]+;")
_FUNCTION = re.compile(r"CREATE OR REPLACE FUNCTION (?P<name>\w+)\(.*?\$\$.*?\$\$;", re.S)
_TRIGGER = re.compile(r"CREATE OR REPLACE TRIGGER (?P<name>\w+) [^;]*? ON (?P<table>\w+)\s[^;]+;")
_HOOKS = "hooks.sql"
_CHANGED = "a changed signature needs a new name for one release, so that old and new processes can run side by side"


class DefinitionRefused(Exception):
    """A definition can't replace the installed one. Nothing was changed."""


@dataclass(frozen=True)
class Definition:
    kind: str
    name: str
    table: str
    text: str
    path: Path

    @property
    def key(self) -> str:
        return f"{self.kind} {self.name}" + (f" ON {self.table}" if self.table else "")

    @property
    def digest(self) -> str:
        return sha256(self.text.encode()).hexdigest()


def parse(path: Path) -> Iterator[Definition]:
    """Yield the definitions of a file. Raises ValueError for a statement of any other kind."""
    text, at = path.read_text(encoding="utf-8"), 0
    while True:
        if skipped := _SKIPPED.match(text, at):
            at = skipped.end()
        if at == len(text):
            return
        for kind, pattern in (("TYPE", _TYPE), ("FUNCTION", _FUNCTION), ("TRIGGER", _TRIGGER)):
            if found := pattern.match(text, at):
                yield Definition(kind, found["name"], found.groupdict().get("table") or "", found[0], path)
                at = found.end()
                break
        else:
            line = text.count("\n", 0, at) + 1
            raise ValueError(
                f"{path}:{line}: expected CREATE TYPE, CREATE OR REPLACE FUNCTION or CREATE OR REPLACE TRIGGER"
            )


@cache
def definitions() -> dict[str, Definition]:
    """Return the definitions of all installed apps by key.

    A definition in a `hooks.sql` is a default, which another app may replace. Raises ValueError if a key has two
    defaults, or two definitions that are not defaults.
    """
    found: dict[str, Definition] = {}
    for app in apps.get_app_configs():
        for path in sorted(Path(app.path, "sql").glob("*.sql")):
            for each in parse(path):
                known = found.get(each.key)
                if known is not None and (known.path.name == _HOOKS) == (path.name == _HOOKS):
                    raise ValueError(f"{each.key} is defined in {known.path} and in {path}: remove one")
                if known is None or path.name != _HOOKS:
                    found[each.key] = each
    return found


def differing(using: str = DEFAULT_DB_ALIAS) -> list[str]:
    """Return the keys of definitions that are missing, different or superfluous in the database."""
    wanted = {each.key: each.digest for each in definitions().values()}
    with connections[using].cursor() as cursor:
        installed = _installed(cursor)
    return sorted({key for key, _ in wanted.items() ^ installed.items()})


def missing(using: str = DEFAULT_DB_ALIAS) -> list[str]:
    """Return the keys of functions and types that the database lacks.

    Others may differ or be additional, since newer code may have installed them.
    """
    with connections[using].cursor() as cursor:
        installed = _installed(cursor)
    return sorted(key for key, each in definitions().items() if each.kind != "TRIGGER" and key not in installed)


def install(using: str = DEFAULT_DB_ALIAS) -> list[str]:
    """Install the files' definitions in one transaction and return the keys that differed.

    Raises DefinitionRefused, and changes nothing, for a changed type or signature.
    """
    if not differing(using):
        return []
    with transaction.atomic(using), connections[using].cursor() as cursor:
        # If two `migrate` commands run at once, the second one waits here and finds nothing left to do.
        cursor.execute("LOCK TABLE ledger_definition IN EXCLUSIVE MODE")
        # Functions may call each other in any order; tests/integration/architecture/test_sql.py checks their bodies.
        cursor.execute("SET LOCAL check_function_bodies = off")
        installed, wanted = _installed(cursor), definitions()
        changed = [each for each in wanted.values() if installed.get(each.key) != each.digest]
        for kind in ("TYPE", "FUNCTION", "TRIGGER"):
            for each in changed:
                if each.kind == kind:
                    _create(cursor, each, is_new=each.key not in installed)
        _refuse_overloads(cursor, [each.name for each in changed if each.kind == "FUNCTION"])
        gone = sorted(installed.keys() - wanted.keys())
        for kind in ("TRIGGER", "FUNCTION", "TYPE"):
            for key in gone:
                if key.startswith(kind):
                    # Dropping a table also drops its triggers, its row type and the functions that take a row.
                    cursor.execute(f"DROP {kind} IF EXISTS {key.removeprefix(kind)}")
        cursor.execute("DELETE FROM ledger_definition WHERE name = ANY (%s)", [[*gone, *(x.key for x in changed)]])
        cursor.executemany(
            "INSERT INTO ledger_definition (name, digest) VALUES (%s, %s)", [(x.key, x.digest) for x in changed]
        )
        cursor.execute("SET LOCAL check_function_bodies = on")
        return sorted([*gone, *(each.key for each in changed)])


def _installed(cursor: CursorWrapper) -> dict[str, str]:
    cursor.execute("SELECT name, digest FROM ledger_definition")
    return dict(cursor.fetchall())


def _create(cursor: CursorWrapper, each: Definition, is_new: bool) -> None:
    if each.kind == "TYPE" and not is_new:
        raise DefinitionRefused(f"{each.path.name}: the type {each.name} has changed: {_CHANGED}")
    try:
        cursor.execute(each.text)
    except ProgrammingError as error:
        if isinstance(error.__cause__, errors.InvalidFunctionDefinition):
            raise DefinitionRefused(f"{each.path.name}: {each.name} has a different signature: {_CHANGED}") from error
        raise


def _refuse_overloads(cursor: CursorWrapper, names: list[str]) -> None:
    """Refuse functions whose arguments changed: they would become overloads, and callers would still reach the old
    ones."""
    cursor.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proname = ANY (%s) "
        "GROUP BY proname HAVING count(*) > 1 ORDER BY proname",
        [names],
    )
    if row := cursor.fetchone():
        raise DefinitionRefused(f"{row[0]} has a different signature: {_CHANGED}")
