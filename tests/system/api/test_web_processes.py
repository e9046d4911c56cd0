"""Several web processes on one socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.test import Client
from websockets.asyncio.client import connect

from runs.models import Process
from tests.system.api.web import Web, serving

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def several(process_env: dict[str, str]) -> Iterator[Web]:
    # The test makes sessions itself, so it needs the processes' key.
    with serving(process_env | {"DURABLEAGENTS_SECRET_KEY": settings.SECRET_KEY}, "--processes=2") as running:
        running.until(lambda: len(serving_pids()) == 2, "both serve")
        yield running


def serving_pids() -> set[int]:
    return set(Process.objects.filter(kind="web", ended_at=None).values_list("pid", flat=True))


def asked(web: Web, times: int = 40) -> set[int]:
    """Return the statuses of requests on separate connections, so that each process gets some."""
    return {httpx.get(f"{web.client.base_url}/healthz", timeout=15).status_code for _ in range(times)}


def test_several_processes_serve_as_one(several: Web) -> None:
    """One socket, one count of guesses, and a process that dies is replaced while the other serves."""
    assert asked(several) == {200}
    answers = [sign_in_wrongly(several) for _ in range(13)]
    assert answers == [400] * 10 + [429] * 3, "whichever process was asked"

    victim = min(serving_pids())
    psutil.Process(victim).kill()
    assert asked(several) == {200}
    several.until(lambda: len(serving_pids() - {victim}) == 2, "another in its place")
    assert several.stop() == 0 and not serving_pids() - {victim}


async def test_a_socket_is_served_by_whichever_process(several: Web, operator: Any, django_user_model: Any) -> None:
    """Both get events, and both notice a session's end."""

    def signed_in() -> Any:
        client = Client()
        client.force_login(django_user_model.objects.get(username="operator"))
        return client

    client = await database_sync_to_async(signed_in)()
    port = several.client.base_url.port
    name = f"durableagents_session_{port}"
    cookie = f"{name}={await database_sync_to_async(lambda: client.session.session_key)()}"
    links = [
        await connect(
            f"ws://127.0.0.1:{port}/ws/live", origin=f"http://127.0.0.1:{port}", additional_headers={"Cookie": cookie}
        )
        for _ in range(12)
    ]
    assert all([await link.recv() for link in links])
    await database_sync_to_async(client.logout)()
    for link in links:
        await link.wait_closed()
    assert {link.close_code for link in links} == {4401}


def sign_in_wrongly(web: Web) -> int:
    with httpx.Client(base_url=web.client.base_url, timeout=15) as client:
        token = client.get("/login").text.split('name="csrfmiddlewaretoken" value="', 1)[1].split('"', 1)[0]
        return client.post("/login", data={"username": "x", "password": "y", "csrfmiddlewaretoken": token}).status_code
