"""A run's page is told what its models are saying, over its socket; so is whoever asks over the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from channels.db import database_sync_to_async
from django.db import OperationalError, connection

from ledger.models import Head
from runs.models import Listener, Overheard, Run
from runs.overheard import ears as ears_
from runs.overheard.ears import Ears
from tests.integration.console.conftest import Reader, start
from tests.integration.console.test_live import Link, socket

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ears_, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr(ears_, "TROUBLE_SECONDS", 0.02)


def say(run: Run, text: str) -> None:
    """What a worker does that drives the run."""
    Head.objects.filter(run_id=run.id).update(lease=uuid4())
    epoch = Head.objects.get(run_id=run.id).epoch
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_overheard (run_id, slot, attempt, epoch, text, characters, at) "
            "VALUES (%s, '0.1/1/0/0', 0, %s, %s, %s, clock_timestamp()) ON CONFLICT (run_id, slot) "
            "DO UPDATE SET text = excluded.text, characters = excluded.characters, at = excluded.at",
            [run.id, epoch, text, len(text)],
        )


async def saying(link: Link) -> list[dict[str, Any]]:
    while True:
        told = await link._app.receive_output(timeout=10)
        message = json.loads(told["text"])
        if "saying" in message:
            return message["saying"]  # type: ignore[no-any-return]


async def test_the_page_of_a_run_hears_it_grow_and_end_and_another_runs_page_does_not(operator: Reader) -> None:
    run, other = await database_sync_to_async(start)(), await database_sync_to_async(start)()
    link, beside = socket(operator, f"/ws/runs/{run.id}"), socket(operator, f"/ws/runs/{other.id}")
    assert await link.connect() and await beside.connect()
    await database_sync_to_async(say)(run, "Once")
    assert await saying(link) == [{"slot": "0.1/1/0/0", "text": "Once", "characters": 4}]
    await database_sync_to_async(say)(run, "Once <b>more</b>")
    assert (await saying(link))[0]["text"] == "Once <b>more</b>"
    await database_sync_to_async(lambda: Overheard.objects.all().delete())()
    assert await saying(link) == []
    assert await database_sync_to_async(lambda: Listener.objects.count())() == 2, "both are looked at"
    await database_sync_to_async(say)(other, "mine")
    assert (await saying(beside))[0]["text"] == "mine"
    await link.leave()
    await beside.leave()


async def test_who_may_not_be_there_hears_nothing(reader: Callable[..., Reader]) -> None:
    run = await database_sync_to_async(start)()
    await database_sync_to_async(say)(run, "secret")
    link = socket(reader(None), f"/ws/runs/{run.id}")
    assert await link.connect()
    assert await link.closed() == 4401
    assert await database_sync_to_async(lambda: Listener.objects.count())() == 0


async def test_all_pages_of_a_process_are_one_look_and_none_is_made_without_them() -> None:
    looks: list[tuple[str, int]] = []
    enough = asyncio.Event()

    async def in_thread(act: Any, runs: list[UUID]) -> Any:
        looks.append((act.__name__, len(runs)))
        if len(looks) >= 6:
            enough.set()
        if len(looks) == 3:
            raise OperationalError("away")
        return {}

    ears = Ears(in_thread)
    async with ears.open(UUID(int=1)), ears.open(UUID(int=1)), ears.open(UUID(int=2)):
        await asyncio.wait_for(enough.wait(), 10)
    assert looks[:4] == [("listen", 2), ("said", 2), ("said", 2), ("said", 2)], "an outage is got over"
    seen = len(looks)
    await asyncio.sleep(0.1)
    assert len(looks) <= seen + 1 and ears._look is not None and ears._look.done()


def test_a_page_has_a_place_for_it_and_none_of_it(reader: Callable[..., Reader]) -> None:
    run = start()
    say(run, "hello")
    shown = reader("auditor").client.get(f"/runs/{run.id}").content.decode()
    assert 'id="saying"' in shown and "hello" not in shown
