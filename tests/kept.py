"""Connections that the tests of one process use one after the other.

A new one reads the catalogue anew and compiles each function at its first call, which takes PostgreSQL longer than most
tests take. What a test may have left behind is put right in between.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from django.db import connection
from psycopg_pool import PoolTimeout

from runs.journal.libpq import Pool

_cleaners: dict[str, psycopg.Connection[Any]] = {}
_AS_NEW = (  # RESET ALL leaves the role, and whose session it is
    "RESET SESSION AUTHORIZATION", "RESET ROLE", "RESET ALL", "DISCARD TEMP", "UNLISTEN *",
    "SELECT pg_advisory_unlock_all()",
)  # fmt: skip
_resting: list[tuple[asyncio.Runner, Pool]] = []


def settle() -> None:
    """A test is over: Django's connection is kept, unless it was cut or is in the middle of something."""
    if connection.connection is None:
        return
    if connection.in_atomic_block or connection.needs_rollback or not connection.is_usable():
        connection.close()


def cleaner(url: str) -> psycopg.Connection[Any]:
    """A superuser's connection to this database for which no trigger holds."""
    link = _cleaners.get(url)
    if link is not None:
        try:
            link.execute("SELECT")
            return link
        except psycopg.OperationalError:
            link.close()  # the test cut it, or restarted the server
    link = _cleaners[url] = psycopg.connect(url, autocommit=True)
    link.execute("SET session_replication_role = replica")
    return link


def borrow() -> tuple[asyncio.Runner, Pool | None]:
    """A stage's event loop, and its workers' connection if one is left from before; two stages don't share one."""
    return _resting.pop() if _resting else (asyncio.Runner(), None)


def give_back(runner: asyncio.Runner, pool: Pool | None) -> None:
    """The stage is over: the next one has the loop and the connection, unless something is left in either."""
    if pool is not None and runner.run(_is_as_new(pool)):
        _resting.append((runner, pool))
    else:
        _close(runner, pool)


async def _is_as_new(pool: Pool) -> bool:
    """Nobody is at work but the pool, in no thread either, and its only connection answers. What was set is reset."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    others -= {task for task in others if task.get_name().startswith(f"{pool.name}-")}
    stats = pool.get_stats()
    if (
        [task.get_coro().__qualname__ for task in others] not in ([], ["Event.wait"])  # the pool's own before 3.12
        or getattr(asyncio.get_running_loop(), "_default_executor", None) is not None
        or _has_plans(asyncio.get_running_loop())
        or (stats["pool_size"], stats["pool_available"]) != (1, 1)
    ):
        return False
    try:
        async with pool.connection(timeout=1) as link:
            for order in _AS_NEW:
                await link.execute(order)
    except (psycopg.OperationalError, PoolTimeout):
        return False  # the test cut it, or restarted the server
    return True


def _has_plans(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether anything is to be called later. The time of a wait is asyncio's own, and only the pool waits."""
    planned = [handle for handle in getattr(loop, "_scheduled", ()) if not handle.cancelled()]
    return any(not handle._callback.__module__.startswith("asyncio.") for handle in planned)


def _close(runner: asyncio.Runner, pool: Pool | None) -> None:
    if pool is not None:
        runner.run(pool.close())
    runner.close()


def hang_up() -> None:
    """The last test is over: the database is to be dropped."""
    for link in _cleaners.values():
        link.close()
    _cleaners.clear()
    while _resting:
        _close(*_resting.pop())
    connection.close()
