"""The stage leaves nothing behind: what a story commits would be met by whichever test comes next in its process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from psycopg_pool import AsyncConnectionPool

from durableagents import Context, End
from durableagents.identity.auth import issue_key
from runs.connections import dsn
from runs.journal.libpq import Pool
from tests import kept
from tests.conftest import database_urls
from tests.runs.stage import MIGRATED, Stage, clean
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
AT_ONCE = {"autocommit": True}


def filled(url: str) -> set[str]:
    with psycopg.connect(url) as link:
        tables = [name for (name,) in link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        return {name for name in tables if link.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()} - MIGRATED


def test_nothing_of_a_story_stays(stage: Stage, tools: Toolbox, postgres: Mapping[str, str]) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.order, Item(name="a"))).ref)

    issue_key(User.objects.create_user("somebody", password="a long enough one"), "test")
    stage.start(agent_of(node, tools=tools.all()))
    stage.drive()
    connection.close()
    admin = database_urls(postgres)["admin"]
    assert {"auth_user", "durableagents_apikey", "runs_run", "ledger_event"} <= filled(admin)
    clean(admin)
    assert filled(admin) == set()


@pytest.fixture
def lent() -> Iterator[tuple[asyncio.Runner, Pool]]:
    """An event loop and a connection, as a stage has them."""
    runner = asyncio.Runner()

    async def opened() -> Pool:
        pool: Pool = AsyncConnectionPool(dsn(name="stage"), min_size=1, max_size=2, open=False, kwargs=AT_ONCE)
        await pool.open(wait=True)
        return pool

    pool = runner.run(opened())
    yield runner, pool
    if not pool.closed:
        kept._close(runner, pool)


def goes_on(runner: asyncio.Runner, pool: Pool) -> bool:
    """Give them back, and say whether the next test would have them."""
    kept.give_back(runner, pool)
    if (runner, pool) not in kept._resting:
        return False
    kept._resting.remove((runner, pool))
    return True


@pytest.mark.parametrize(
    ("order", "asks"),
    [
        ("SET ROLE pg_monitor", "SELECT current_user = session_user"),
        ("CREATE TEMP TABLE left_behind (n int)", "SELECT to_regclass('left_behind') IS NULL"),
        ("SET statement_timeout = 7", "SELECT current_setting('statement_timeout') = '0'"),
    ],
)
def test_what_a_test_set_on_its_connection_is_not_met_by_the_next(
    lent: tuple[asyncio.Runner, Pool], order: str, asks: str
) -> None:
    runner, pool = lent

    async def told(statement: str) -> Any:
        async with pool.connection() as link:
            cursor = await link.execute(statement)
            return (await cursor.fetchone() or [None])[0] if cursor.description else None

    assert runner.run(told(asks)) is True
    runner.run(told(order))
    assert runner.run(told(asks)) is False
    is_kept = goes_on(runner, pool)
    assert is_kept
    as_new = runner.run(told(asks))
    assert as_new is True


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_what_a_test_planned_is_not_done_in_the_next(lent: tuple[asyncio.Runner, Pool], is_cancelled: bool) -> None:
    async def plan() -> None:
        later = asyncio.get_running_loop().call_later(3600, print, "late")
        if is_cancelled:
            later.cancel()

    lent[0].run(plan())
    is_kept = goes_on(*lent)
    assert is_kept is is_cancelled
