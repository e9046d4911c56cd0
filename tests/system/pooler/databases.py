"""Databases of their own for installations behind a pooler."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from django.core.management import call_command
from django.db import connection, connections

from durableagents import databases, env


@contextmanager
def database(postgres: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Create an empty database of the owner role and give its addresses by role."""
    name = f"installation_{uuid4().hex[:12]}"
    with psycopg.connect(postgres["admin"], autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" OWNER {databases.OWNER_ROLE}'.encode())
        try:
            yield {role: url.replace("@/durableagents?", f"@/{name}?") for role, url in postgres.items()}
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@contextmanager
def django_on(url: str, role: str = "runtime") -> Iterator[None]:
    """Lead Django's connections to this database, under the limits of this role."""
    environment = env.Environment(DATABASE_URL=url, DURABLEAGENTS_DB_ROLE=role)  # type: ignore[call-arg]
    found = databases.django_databases(environment)["default"]
    known = (connections.settings["default"], connections["default"].settings_dict)
    before = [{key: each[key] for key in found} for each in known]
    connection.close()
    for each in known:
        each.update(found)
    try:
        yield
    finally:
        connection.close()
        for each, old in zip(known, before, strict=True):
            each.update(old)


def migrate(url: str) -> None:
    """Migrate as an operator does: as the owner, without time limits."""
    with django_on(url, "owner"):
        call_command("migrate", verbosity=0, interactive=False)


def is_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert that a command ended with code 2 and one line that holds these words."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
