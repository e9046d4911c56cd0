"""Databases of their own for upgrades: restored from a dump, looked at, and made Django's for a while."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from durableagents import databases, env, grants

# In the order in which their code landed. Some are much like their neighbours: they are for `make test-all`.
COMMITS = ("35b5861", "46b5c85", "8bc9f88", "b957ed2", "eb7ed38", "64c249e", "ad14af3", "c0be986", "fea9c54")
USUAL = ("35b5861", "8bc9f88", "c0be986", "fea9c54")
DUMPS = [Path(__file__).parent / "dumps" / f"{commit}.sql.gz" for commit in COMMITS]
Catalog = dict[str, dict[str, str]]
_OURS = ("ledger", "runs", "approvals", "durableagents")
# By name and never by position: a column that came later stands at another place. Of triggers without brackets: what is
# written as `(a, b, c) IS DISTINCT FROM …` has other ones once it was dumped and restored; and so has an index's
# condition, whose casts stand elsewhere then.
_LOOKS = {
    "functions": """
        SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', pg_get_functiondef(p.oid)
        FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f'""",
    "columns": """
        SELECT c.relname || '.' || a.attname, concat_ws(' ', c.relkind, format_type(a.atttypid, a.atttypmod),
        a.attnotnull, a.attidentity,
            a.attgenerated, a.attcollation, pg_get_expr(d.adbin, d.adrelid))
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) =
        (c.oid, a.attnum)
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'c') AND a.attnum > 0 AND
        NOT a.attisdropped""",
    "indexes": r"""
        SELECT indexname, regexp_replace(indexdef, '::(text|character varying)(\[\])?|[()]', '', 'g')
        FROM pg_indexes WHERE schemaname = 'public'""",
    "constraints": """
        SELECT conrelid::regclass || ' ' || conname, pg_get_constraintdef(oid) || convalidated::text
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'""",
    "triggers": "SELECT tgrelid::regclass || ' ' || tgname, translate(pg_get_triggerdef(oid), '()', '') "
    "|| tgenabled::text "
    "FROM pg_trigger WHERE NOT tgisinternal",
    "sequences": "SELECT sequencename, concat_ws(' ', data_type, start_value, increment_by, max_value) "
    "FROM pg_sequences WHERE schemaname = 'public'",
    "storage": """
        SELECT c.relname || '.' || a.attname, concat_ws(' ', a.attstorage, a.attcompression) FROM pg_class c JOIN
        pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped""",
    "options": "SELECT relname, reloptions::text FROM pg_class WHERE relnamespace = "
    "'public'::regnamespace AND reloptions IS NOT NULL",
    "migrations": "SELECT app || '.' || name, '' FROM django_migrations",
    "grants": f"""
        SELECT table_name || ' ' || privilege_type, '' FROM information_schema.role_table_grants
        WHERE table_schema = 'public' AND grantee = '{databases.RUNTIME_ROLE}'""",
}


def catalog(url: str) -> Catalog:
    """All that the schema of a database is made of, each thing by its name."""
    with psycopg.connect(url) as link:
        link.execute("SET search_path = public")
        return {what: dict(link.execute(query).fetchall()) for what, query in _LOOKS.items()}  # type: ignore[arg-type]


def difference(left: Catalog, right: Catalog) -> dict[str, list[Any]]:
    """What only one of the two has, or has otherwise."""
    found: dict[str, list[Any]] = {}
    for what in left:
        names = sorted(left[what].keys() | right[what].keys())
        found[what] = [
            (n, left[what].get(n), right[what].get(n)) for n in names if left[what].get(n) != right[what].get(n)
        ]
    return {what: differs for what, differs in found.items() if differs}


def apps_of(applied: Mapping[str, str]) -> set[str]:
    return {name.partition(".")[0] for name in applied}


def leaves(applied: Mapping[str, str]) -> list[tuple[str, str]]:
    """The newest migrations of each app of ours that a database has: those that none of its app's needs, whatever their
    names, for some came in between."""
    nodes = MigrationExecutor(connection).loader.graph.node_map
    ours = {(app, name) for app, _, name in (each.partition(".") for each in applied) if app in _OURS}
    needed = {each.key for one in ours for each in nodes[one].parents if each.key[0] == one[0]}
    return sorted(ours - needed)


def contents(url: str) -> dict[str, list[str]]:
    """Every row of every table of ours."""
    with psycopg.connect(url) as link:
        tables = link.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename ~ '^(ledger|runs|approvals)_'"
        ).fetchall()
        return {
            t: [row[0] for row in link.execute(f"SELECT r::text FROM {t} r ORDER BY 1".encode())] for (t,) in tables
        }


# Clocks of their own for the application's roles, found before PostgreSQL's wherever a query or a function names one.
_THEN = f"""
DO $$
DECLARE
    past interval := (SELECT clock_timestamp() - max(at) - interval '1 minute' FROM ledger_event);
    path text := 'public, then_, pg_catalog, pg_temp';
    name text;
BEGIN
    IF to_regnamespace('then_') IS NULL THEN
        CREATE SCHEMA then_;
        GRANT USAGE ON SCHEMA then_ TO {databases.RUNTIME_ROLE}, {databases.OWNER_ROLE};
        FOREACH name IN ARRAY '{{clock_timestamp, statement_timestamp, transaction_timestamp, now}}'::text[] LOOP
            EXECUTE format('CREATE FUNCTION then_.%1$I() RETURNS timestamptz LANGUAGE sql VOLATILE AS '
                           '$f$ SELECT pg_catalog.%1$I() - %2$L::interval $f$', name, past);
        END LOOP;
    END IF;
    FOREACH name IN ARRAY '{{{databases.RUNTIME_ROLE}, {databases.OWNER_ROLE}}}'::text[] LOOP
        EXECUTE format('ALTER ROLE %I IN DATABASE %I SET search_path = %s', name, current_database(), path);
    END LOOP;
    EXECUTE 'SET LOCAL search_path = ' || path;
    FOR name IN SELECT oid::regprocedure FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND array_to_string(proconfig, ' ') LIKE '%search_path%'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %s', name, path);
    END LOOP;
    FOR name IN SELECT format('%s ALTER %I SET DEFAULT %s', d.adrelid::regclass, a.attname,
                              replace(pg_get_expr(d.adbin, d.adrelid), 'pg_catalog.', ''))
        FROM pg_attrdef d JOIN pg_attribute a ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum)
        WHERE pg_get_expr(d.adbin, d.adrelid) ~ '(timestamp|now)[(]'
    LOOP
        EXECUTE 'ALTER TABLE ' || name;
    END LOOP;
END $$"""


def as_then(urls: Mapping[str, str]) -> None:
    """In this database it is just after its dump was made, whatever the day: else what waits in it would be overdue a
    week later. Said again after a migration, it counts for what is new."""
    with psycopg.connect(urls["admin"]) as link:
        link.execute(_THEN.encode())


@contextmanager
def database(postgres: Mapping[str, str], dump: Path | None = None) -> Iterator[dict[str, str]]:
    """A database of the owner role's, empty or from a dump. Gives its addresses by role."""
    name = f"upgrade_{uuid4().hex[:12]}"
    with psycopg.connect(postgres["admin"], autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" OWNER {databases.OWNER_ROLE}'.encode())
        try:
            urls = {role: url.replace("@/durableagents?", f"@/{name}?") for role, url in postgres.items()}
            if dump is not None:
                with psycopg.connect(urls["owner"]) as owner:
                    owner.execute(gzip.decompress(dump.read_bytes()))
                    owner.execute("SET search_path = public")
                    # A dump names no roles; the rights are those that every `migrate` gives.
                    for statement in grants.statements(databases.RUNTIME_ROLE):
                        owner.execute(statement)
            yield urls
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@contextmanager
def django_on(url: str, role: str = "runtime") -> Iterator[None]:
    """Django's connections lead to this database meanwhile, under the limits of this role."""
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
