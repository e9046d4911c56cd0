from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from runs.connections import dsn
from runs.journal import notify

pytestmark = pytest.mark.django_db(transaction=True)


async def next_of(subscription: notify.Subscription) -> notify.Ring | None:
    return await asyncio.wait_for(subscription.get(), 30)


async def execute(statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn(name="test"), autocommit=True) as link:
        await link.execute(statement)


def ring_in_a_transaction(run_id: Any, *, fail: bool) -> None:
    try:
        with transaction.atomic():
            notify.ring(run_id, 3)
            if fail:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    finally:
        connection.close()


async def test_a_services_ring_reaches_a_subscriber_of_that_run_and_one_of_all() -> None:
    hub, run_id, other = notify.Hub(), uuid4(), uuid4()
    async with hub.subscribe(run_id) as one, hub.subscribe(None) as everything:
        assert await next_of(one) is None  # listening from now on
        assert await next_of(everything) is None
        await sync_to_async(ring_in_a_transaction)(other, fail=False)
        await sync_to_async(ring_in_a_transaction)(run_id, fail=False)
        assert await next_of(one) == (str(run_id), 3)
        assert await next_of(everything) == (str(other), 3)
        assert await next_of(everything) == (str(run_id), 3)


async def test_a_rolled_back_service_rings_nobody() -> None:
    hub, lost, kept = notify.Hub(), uuid4(), uuid4()
    async with hub.subscribe(None) as everything:
        assert await next_of(everything) is None
        await sync_to_async(ring_in_a_transaction)(lost, fail=True)
        await sync_to_async(ring_in_a_transaction)(kept, fail=False)
        assert await next_of(everything) == (str(kept), 3)


async def test_a_workers_rings_are_coalesced_to_the_latest_of_each_run() -> None:
    hub, run_id, other = notify.Hub(), uuid4(), uuid4()
    async with hub.subscribe(None) as everything, notify.AsyncBell() as bell:
        assert await next_of(everything) is None
        for seq in range(1, 200):
            bell.ring(run_id, seq)
        bell.ring(other, 1)
        assert await next_of(everything) == (str(run_id), 199)
        assert await next_of(everything) == (str(other), 1)


async def test_a_lost_listener_comes_back_and_says_read_again() -> None:
    hub, run_id = notify.Hub(), uuid4()
    async with hub.subscribe(run_id) as one, notify.AsyncBell() as bell:
        assert await next_of(one) is None
        await execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            "current_database() AND application_name = 'durableagents live'"
        )
        assert await next_of(one) is None
        bell.ring(run_id, 7)
        assert await next_of(one) == (str(run_id), 7)


async def test_a_bell_keeps_its_rings_while_the_database_is_away() -> None:
    hub, run_id = notify.Hub(), uuid4()
    async with hub.subscribe(run_id) as one, notify.AsyncBell() as bell:
        assert await next_of(one) is None
        bell.ring(run_id, 1)
        assert await next_of(one) == (str(run_id), 1)
        await execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            "current_database() AND application_name = 'durableagents bell'"
        )
        bell.ring(run_id, 2)
        assert await next_of(one) == (str(run_id), 2)


async def test_the_listener_is_open_only_while_somebody_subscribes() -> None:
    hub = notify.Hub()
    async with hub.subscribe(None) as everything:
        assert await next_of(everything) is None
        listener = hub._listener
        assert listener is not None
    with pytest.raises(asyncio.CancelledError):
        await listener
    async with hub.subscribe(None) as everything:
        assert await next_of(everything) is None


async def test_a_slow_subscriber_keeps_one_ring_per_run() -> None:
    subscription = notify.Subscription(None)
    for seq in range(1000):
        subscription.put("a", seq)
        subscription.put("b", seq)
    assert [await subscription.get(), await subscription.get()] == [("a", 999), ("b", 999)]


async def test_reading_again_makes_pending_rings_moot() -> None:
    subscription = notify.Subscription("a")
    subscription.put("a", 1)
    subscription.reread()
    assert await subscription.get() is None
    subscription.put("a", 2)
    assert await subscription.get() == ("a", 2)


def test_payloads_fit_into_one_notification_each_and_lose_nothing() -> None:
    rings = {str(uuid4()): 10**12 + n for n in range(1000)}
    pieces = list(notify.payloads(rings))
    assert all(len(piece) <= notify.PAYLOAD_BYTES for piece in pieces)
    assert len(pieces) < 10
    assert dict(ring for piece in pieces for ring in notify.parse(piece)) == rings


def test_what_is_no_ring_is_skipped() -> None:
    assert list(notify.parse("nonsense,a:1,:2,b:x,c:3")) == [("a", 1), ("c", 3)]


def test_an_outage_between_commit_and_ring_leaves_what_is_done_done(caplog: pytest.LogCaptureFixture) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = cursor.fetchone()[0]

    def pull_the_plug() -> None:
        with psycopg.connect(dsn(name="test"), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])

    with transaction.atomic():
        transaction.on_commit(pull_the_plug)
        notify.ring(uuid4(), 1)
    connection.close()

    assert "a ring was lost" in caplog.text
