"""Connections and event loops shared by a process's tests, since new ones are slow, and the reset in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import psycopg
from django.db import connection
from psycopg_pool import AsyncConnectionPool

from ledger.protected import code_of, registry
from ledger.web.roles import AUDITOR, OPERATOR, ROLES
from ledger.web.seeing.viewers import APP, READ_PAYLOADS
from runs.connections import dsn
from runs.journal.libpq import Pool

# Tables that no test empties, because migrations filled them.
MIGRATED = {"django_content_type", "auth_permission", "ledger_definition", "django_migrations", "retention_runtable"}
POOL = "durableagents stage"

# Delete with cached plans: for few rows DELETE takes a tenth of TRUNCATE's time.
_RESET = """
    CREATE FUNCTION pg_temp.reset() RETURNS void LANGUAGE plpgsql AS $body$
    BEGIN
        {deletes};
        WITH made AS (INSERT INTO auth_group (name) SELECT unnest({roles}::text[]) RETURNING id, name)
        INSERT INTO auth_group_permissions (group_id, permission_id)
        SELECT made.id, p.id FROM made, auth_permission p JOIN django_content_type c ON c.id = p.content_type_id
        WHERE made.name = ANY({readers}::text[]) AND c.app_label = {app} AND p.codename = {right};
        INSERT INTO approvals_queue SELECT * FROM pg_temp.first_queue;
    END $body$"""
_TABLES = """
    SELECT quote_ident(tablename) FROM pg_tables
    WHERE schemaname = 'public' AND NOT tablename = ANY(%s) ORDER BY tablename"""
# The proofs of the restored rows, which need codes again.
_PROOFS = f"""
    SELECT jsonb_build_array(ledger_role_proof(g)) FROM auth_group g
    UNION ALL SELECT {registry["approvals_queue"].proof_sql("q")} FROM approvals_queue q"""
_CODED = """
    INSERT INTO ledger_rowcode (table_name, key, n, state, code)
    SELECT t, k, 1, s, c FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[]) AS x(t, k, s, c)"""
_END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_cleaners: dict[str, psycopg.Connection[Any]] = {}
# The queues made by the migrations, by database.
_first_queues: dict[str, list[str]] = {}
_free: list[Loop] = []


def settle() -> None:
    """Keep Django's connection for the next test, unless it was cut or is inside a transaction."""
    if connection.connection is None:
        return
    if connection.in_atomic_block or connection.needs_rollback or not connection.is_usable():
        connection.close()


def clean(url: str) -> None:
    """Empty every table but those of `MIGRATED`, and restore the roles and queues that a migration makes."""
    link = _cleaner(url)
    link.execute("SELECT pg_temp.reset()")
    rows = [proof[0] for (proof,) in link.execute(_PROOFS).fetchall()]
    tables, keys, states = [list(column) for column in list(zip(*rows, strict=True))[:3]]
    codes = [code_of(table, key, 1, state) for table, key, state, _ in rows]
    link.execute(_CODED, [tables, keys, states, codes])


def _cleaner(url: str) -> psycopg.Connection[Any]:
    link = _cleaners.get(url)
    if link is not None:
        try:
            link.execute("SELECT")
            return link
        except psycopg.OperationalError:
            link.close()  # the test cut it, or restarted the server
    link = _cleaners[url] = psycopg.connect(url, autocommit=True)
    link.execute("SET session_replication_role = replica")
    if url not in _first_queues:
        rows = link.execute("SELECT to_jsonb(q)::text FROM approvals_queue q ORDER BY q.id").fetchall()
        _first_queues[url] = [row for (row,) in rows]
    link.execute("CREATE TEMP TABLE first_queue AS SELECT * FROM approvals_queue WHERE false")
    put_back = "INSERT INTO first_queue SELECT * FROM jsonb_populate_record(NULL::approvals_queue, %s::jsonb)"
    link.cursor().executemany(put_back, [(row,) for row in _first_queues[url]])
    tables = link.execute(_TABLES, [list(MIGRATED)]).fetchall()
    link.execute(
        psycopg.sql.SQL(_RESET).format(
            deletes=psycopg.sql.SQL("; ".join(f"DELETE FROM {table}" for (table,) in tables)),
            roles=list(ROLES),
            readers=[OPERATOR, AUDITOR],
            app=APP,
            right=READ_PAYLOADS,
        )
    )
    return link


class Loop:
    """An event loop and a pool of database connections, used by one stage at a time."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.context = copy_context()
        self.pool: Pool | None = None
        self.dsn = dsn(name=POOL)

    async def connected(self) -> Pool:
        """Return the pool with connections that work and have their first settings."""
        if self.pool is None:
            self.pool = _Pool(
                self.dsn,
                min_size=1,
                max_size=8,
                open=False,
                timeout=10.0,
                kwargs={"autocommit": True, "prepare_threshold": None},
                name=POOL,
            )
            await self.pool.open(wait=True)
        else:
            await self.pool.check()
        return self.pool

    def give_back(self) -> None:
        """Keep this for the next stage, or close it if the test left anything running or borrowed."""
        if self._is_idle():
            _free.append(self)
        else:
            self.close()

    def _is_idle(self) -> bool:
        loop = self.runner.get_loop()
        left = [task for task in asyncio.all_tasks(loop) if not task.get_name().startswith(POOL)]
        # The pool's scheduler waits for an event in a task.
        if any(task.get_coro().__qualname__ != "Event.wait" for task in left) or len(left) > 1:
            return False
        if getattr(loop, "_default_executor", None) is not None:
            return False
        stats = self.pool.get_stats() if self.pool is not None else {}
        return stats.get("pool_size") == stats.get("pool_available") and not stats.get("requests_waiting")

    def close(self) -> None:
        if self.pool is not None:
            self.runner.run(self.pool.close())
        self.runner.close()


class _Pool(AsyncConnectionPool[Any]):
    @staticmethod
    async def check_connection(conn: Any) -> None:
        await conn.execute("RESET ALL")


def borrow_loop() -> Loop:
    while _free:
        loop = _free.pop()
        if loop.dsn == dsn(name=POOL):
            loop.context = copy_context()
            return loop
        loop.close()
    return Loop()


def hang_up() -> None:
    """Close every connection to the test database, also those left by threads, so that it can be dropped."""
    while _free:
        _free.pop().close()
    connection.close()
    for link in _cleaners.values():
        with suppress(psycopg.OperationalError):  # the last test cut it, or restarted the server
            link.execute(_END_OTHERS)
        link.close()
    _cleaners.clear()
