"""Runs on the real database, and a receiver that checks signatures with the library of Standard Webhooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from durableagents.contrib.webhooks import services
from durableagents.contrib.webhooks.models import Webhook
from durableagents.contrib.webhooks.services import WebhookBody
from ledger.actors import Actor
from tests.contrib.notifications.mail_server import allow
from tests.integration.runs.conftest import _agents_of_this_test, outside, stage, tools

__all__ = ["_agents_of_this_test", "outside", "stage", "tools"]
SHELL = Actor("os", "ops", auth="shell")
WHY = "the billing system asked for it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, since pytest-django creates a database only if some test has the mark."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.django_db)


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Skip pytest-django's flush: the stage cleans up."""


@dataclass
class Receiver:
    """An endpoint. `secret` verifies what it gets; `answers` are status, headers and body of the next answers, then
    200."""

    url: str = ""
    secret: str = ""
    got: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    on_message: Callable[[], None] = lambda: None

    @property
    def types(self) -> list[str]:
        return [message["type"] for _, message in self.got]


@pytest.fixture
def receivers(settings: Any) -> Iterator[Callable[[], Receiver]]:
    """Start receivers on ports of their own."""
    allow(settings, "127.0.0.0/8")
    servers: list[ThreadingHTTPServer] = []

    def begin() -> Receiver:
        receiver = Receiver()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.on_message()
                message = Verifier(receiver.secret).verify(body, dict(self.headers))
                receiver.got.append((self.headers["webhook-id"], message))
                status, headers, text = receiver.answers.pop(0) if receiver.answers else (200, {}, b"ok")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        receiver.url = f"http://127.0.0.1:{server.server_port}/hooks"
        return receiver

    yield begin
    for each in servers:
        each.shutdown()
        each.server_close()


def webhook(receiver: Receiver, *events: str, by: Actor = SHELL, **more: Any) -> Webhook:
    """Create a webhook to a receiver, which then knows the secret."""
    name = more.pop("name", f"billing {Webhook.objects.count()}")
    body = WebhookBody(name=name, url=receiver.url, events=list(events), justification=WHY, **more)
    row, receiver.secret = services.create(body, by=by)
    return row
