"""Separate databases for tests of upgrades and poolers, empty or restored from a dump."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from django.core.management import call_command
from django.db import connection, connections

from durableagents import databases, env


@contextmanager
def database(postgres: Mapping[str, str], dump: Path | None = None, *, template: str = "") -> Iterator[dict[str, str]]:
    """Create a database, empty, restored from a dump or copied from the one at `template`; yield its addresses."""
    name = f"installation_{uuid4().hex[:12]}"
    copied = psycopg.conninfo.conninfo_to_dict(template)["dbname"] if template else "template1"
    with psycopg.connect(postgres["admin"], autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" OWNER {databases.OWNER_ROLE} TEMPLATE "{copied}"'.encode())
        try:
            urls = {role: url.replace("@/durableagents?", f"@/{name}?") for role, url in postgres.items()}
            if dump is not None:
                with psycopg.connect(urls["owner"]) as owner:
                    owner.execute(gzip.decompress(dump.read_bytes()))
            yield urls
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@contextmanager
def django_on(url: str, role: str = "runtime") -> Iterator[None]:
    """Connect Django to this database, under this role's limits, for the duration of the block."""
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
    """Run `migrate` as the owner, without time limits."""
    with django_on(url, "owner"):
        call_command("migrate", verbosity=0, interactive=False)
