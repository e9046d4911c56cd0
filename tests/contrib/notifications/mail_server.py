"""Receivers of notifications: a real mail server and a chat webhook on ports of their own."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from durableagents.contrib.notifications import delivering
from tests.contrib.notifications.push_service import Answer, http_server


class Postbox:
    """Keeps each mail it takes; `answers` are its next replies instead of accepting."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.to: list[str] = []
        self.answers: list[str] = []
        self.on_mail: Callable[[], None] = lambda: None

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.on_mail()
        if self.answers:
            return self.answers.pop(0)
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(cast(EmailMessage, message_from_bytes(content, policy=default)))
        self.to += envelope.rcpt_tos
        return "250 kept"

    def text(self, n: int = -1) -> str:
        body = self.mails[n].get_body(("plain",))
        assert body is not None
        return str(body.get_content()).replace("\r\n", "\n")

    def html(self, n: int = -1) -> str:
        body = self.mails[n].get_body(("html",))
        assert body is not None
        return str(body.get_content())


@pytest.fixture
def postbox(settings: Any) -> Iterator[Postbox]:
    box = Postbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    use_mail(settings, port)
    delivering._pauses.clear()
    try:
        yield box
    finally:
        controller.stop()
        delivering._pauses.clear()


def use_mail(settings: Any, port: int) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"email_url": f"smtp+plain://127.0.0.1:{port}", "email_from": "agents@example.org"}
    )
    settings.EMAIL_BACKEND, settings.DEFAULT_FROM_EMAIL = "durableagents.outgoing.mail.Backend", "agents@example.org"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", port, 5
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""


@dataclass
class Room:
    """A chat webhook. `answers`: status and headers of the next answers, then 200."""

    url: str = ""
    heard: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [body["text"] for _, body in self.heard]


@contextmanager
def chat_room() -> Iterator[Room]:
    room = Room()

    def take(_: str, headers: dict[str, str], body: bytes) -> Answer:
        room.heard.append((headers, json.loads(body)))
        return room.answers.pop(0) if room.answers else (200, {})

    with http_server(take) as port:
        room.url = f"http://127.0.0.1:{port}/services/T0/B0/secret-part"
        yield room


@pytest.fixture
def room(settings: Any) -> Iterator[Room]:
    allow(settings, "127.0.0.0/8")
    with chat_room() as room:
        yield room


def allow(settings: Any, *networks: str) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"webhook_addresses": list(networks)})
