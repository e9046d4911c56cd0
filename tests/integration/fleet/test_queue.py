"""The wake-up queue: run ids only, in the caller's transaction, taken once, and nothing else fits in."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, transaction
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from django_q.tasks import async_task

from runs.connections import dsn
from runs.services import wakeups
from runs.workers import worker_process
from runs.workers.q2_broker import DoorbellBroker
from tests.cases import each_case

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("runs.workers.q2_broker.PACE_SECONDS", 0.5)  # it waits in open transactions here
    broker = DoorbellBroker("durableagents")
    yield broker
    broker._disconnect()


async def a_coroutine(run_id: str) -> None: ...


def a_function(run_id: str) -> None: ...


def payloads() -> list[str]:
    return list(OrmQ.objects.order_by("id").values_list("payload", flat=True))


def taken(broker: DoorbellBroker) -> list[str]:
    found = broker.dequeue()
    if not found:
        return []
    (message,) = [SignedPackage.loads(package) for _, package in found]
    assert message["func"] == "runs.workers.worker_process.drive"
    return list(message["args"])


def test_a_message_is_the_bare_run_id() -> None:
    run_id = uuid4()
    wakeups.drive(run_id)
    assert payloads() == [str(run_id)]


def test_a_message_rolls_back_with_what_it_tells_of() -> None:
    with transaction.atomic():
        wakeups.drive(uuid4())
        transaction.set_rollback(True)
    assert payloads() == []


def test_a_message_is_invisible_until_the_commit(broker: DoorbellBroker) -> None:
    with transaction.atomic():
        wakeups.drive(uuid4())
        assert taken(broker) == []
    assert len(taken(broker)) == 1


@each_case(
    ("func", "why"),
    [
        (a_coroutine, "async function"),
        (a_function, "not the allowed function"),
        ("os.system", "not the allowed function"),
        (os.system, "not the allowed function"),
        (lambda run_id: None, "not the allowed function"),
    ],
)
def test_nothing_but_a_drive_can_be_queued(func: Callable[..., Any] | str, why: str) -> None:
    with pytest.raises(wakeups.NotQueueable, match=why):
        async_task(func, str(uuid4()))
    assert payloads() == []


@each_case("args", [(), ("no uuid",), ({"a": 1},), (str(uuid4()), str(uuid4()))])
def test_a_drive_carries_exactly_one_run_id(args: tuple[Any, ...]) -> None:
    with pytest.raises(wakeups.NotQueueable, match="exactly one id"):
        async_task(worker_process.drive, *args)


@each_case("options", [{"hook": "os.remove"}, {"sync": True}, {"chain": []}, {"extra": 1}])
def test_hooks_chains_and_inline_runs_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(wakeups.NotQueueable, match="does not accept"):
        async_task("runs.workers.worker_process.drive", str(uuid4()), **options)
    assert payloads() == []


def test_django_q2s_own_call_of_the_allowed_function_works_too() -> None:
    run_id = uuid4()
    async_task(worker_process.drive, run_id)
    assert payloads() == [str(run_id)]


def test_messages_are_taken_once_and_oldest_first(broker: DoorbellBroker) -> None:
    ids = [str(uuid4()) for _ in range(3)]
    for each in ids:
        wakeups.drive(UUID(each))
    assert taken(broker) == ids
    assert payloads() == []
    assert taken(broker) == []


def test_a_pickle_smuggled_into_the_table_is_dropped_unread(
    broker: DoorbellBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.abort, ()

    package = SignedPackage.dumps({"func": "x", "args": (Bomb(),)})
    OrmQ.objects.create(key="durableagents", payload=package, lock="2020-01-01T00:00:00Z")
    assert taken(broker) == []
    assert "is not a run id" in caplog.text
    assert payloads() == []


def test_messages_that_another_takes_right_now_are_skipped(broker: DoorbellBroker) -> None:
    first, second = uuid4(), uuid4()
    wakeups.drive(first)
    wakeups.drive(second)
    with psycopg.connect(dsn()) as other:
        other.execute("SELECT id FROM django_q_ormq ORDER BY id LIMIT 1 FOR UPDATE")
        assert taken(broker) == [str(second)]
    assert taken(broker) == [str(first)]


def test_a_pusher_takes_what_has_gathered_and_pays_for_no_ring(
    broker: DoorbellBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It polls at its own pace, however many runs are queued: a host knows each of them by then."""
    began = time.monotonic()
    for _ in range(20):
        wakeups.drive(uuid4())
    # On a busy machine twenty take their time; they must come within one pace.
    pace = max(0.5, 5 * (time.monotonic() - began))
    monkeypatch.setattr("runs.workers.q2_broker.PACE_SECONDS", pace)
    assert len(taken(broker)) == 20 and taken(broker) == []
    items: list[int] = []
    plain = broker._take
    monkeypatch.setattr(broker, "_take", lambda link: items.append(1) or plain(link))
    waiter = threading.Thread(target=lambda: [wakeups.drive(uuid4()) for _ in range(20)])
    began = time.monotonic()
    waiter.start()
    gathered: list[str] = []
    while len(gathered) < 20:
        gathered += taken(broker)
    waiter.join()
    most = 4 + (time.monotonic() - began) / pace
    assert len(items) <= most, "one or two deliveries, and before each at most one look that found nothing"


def test_a_waiting_pusher_notices_at_once_that_the_server_hung_up(
    broker: DoorbellBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert taken(broker) == []
    monkeypatch.setattr("runs.workers.q2_broker.PACE_SECONDS", 600.0)
    waiter = threading.Thread(target=taken, args=(broker,))
    waiter.start()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = "
            "current_database() AND application_name = 'durableagents pusher'"
        )
        assert cursor.fetchone() == (1,)
    waiter.join(60)
    assert not waiter.is_alive()


def test_the_pusher_outlives_its_connection(broker: DoorbellBroker, caplog: pytest.LogCaptureFixture) -> None:
    assert taken(broker) == []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            "current_database() AND application_name = 'durableagents pusher'"
        )
    wakeups.drive(uuid4())
    deliveries = [taken(broker) for _ in range(2)]
    assert sorted(map(len, deliveries)) == [0, 1]
    assert caplog.text.count("the database is away") == 1


def test_a_batch_of_messages_is_one_delivery(broker: DoorbellBroker) -> None:
    for _ in range(10):
        wakeups.drive(uuid4())
    assert len(taken(broker)) == 10


def test_other_connections_enqueue_by_the_published_statements(broker: DoorbellBroker) -> None:
    run_id = uuid4()

    async def enqueue() -> None:
        async with await psycopg.AsyncConnection.connect(dsn()) as link:
            await link.execute(wakeups.ENQUEUE_SQL, [str(run_id)])
            await link.commit()
            await link.execute(wakeups.NOTIFY_SQL)

    asyncio.run(enqueue())
    assert taken(broker) == [str(run_id)]


def test_the_queues_numbers_go_past_two_thousand_million(broker: DoorbellBroker) -> None:
    """Every start and wake-up takes a number in its transaction: at an integer's end nothing could start any more."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('django_q_ormq', 'id'), 2147483646)")
        ids = [uuid4() for _ in range(3)]
        for run_id in ids:
            wakeups.drive(run_id)
    rows = list(OrmQ.objects.order_by("id"))
    assert [row.id for row in rows] == [2147483647, 2147483648, 2147483649]
    assert [row.payload for row in rows] == list(map(str, ids)), "django-q2's own model reads them"
    assert sorted(taken(broker)) == sorted(map(str, ids)) and OrmQ.objects.count() == 0
