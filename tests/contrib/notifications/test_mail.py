"""Sending a mail ends in time, whatever its server does, from the first address to the last byte."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from durableagents.outgoing import mail
from tests.contrib.notifications.mail_server import use_mail
from tests.contrib.notifications.push_service import certificate
from tests.contrib.notifications.test_channels import DRIP_SECONDS, dripping


def mailed(settings: Any, port: int, how: str) -> tuple[mail.Outcome, float]:
    use_mail(settings, port)
    settings.EMAIL_TIMEOUT = DRIP_SECONDS
    settings.EMAIL_HOST, settings.EMAIL_USE_SSL, settings.EMAIL_USE_TLS = "localhost", how == "smtps", how == "starttls"
    began = time.monotonic()
    outcome = mail.send("ann@example.org", "x", "y")
    return outcome, time.monotonic() - began


@pytest.mark.parametrize(("silent_seconds", "drip"), [(0.0, b"250-x\r\n"), (1.0, b"2")], ids=["line", "slow byte"])
@pytest.mark.parametrize("how", ["plain", "smtps", "starttls"])
def test_a_mail_server_that_drips_is_cut_off_however_slowly_it_shakes_hands(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, silent_seconds: float, drip: bytes
) -> None:
    monkeypatch.setattr(mail, "WHOLE_SECONDS", 0.4)
    certificate_, key = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate_))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_, key)
    clear = b"220 hello\r\n250-here\r\n250 STARTTLS\r\n220 go\r\n" if how == "starttls" else b""
    secure = None if how == "plain" else context
    with dripping(secure, drip, silent_seconds=silent_seconds, clear=clear) as port:
        outcome, seconds = mailed(settings, port, how)
    assert outcome.state == "failed" and outcome.is_down and seconds < DRIP_SECONDS / 3


@pytest.mark.parametrize("is_refused", [False, True], ids=["no such family", "refused"])
def test_a_mail_server_is_reached_where_one_kind_of_address_leads_nowhere(
    settings: Any, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """Six of them precede the only one that accepts connections."""
    with dripping(None, b"2", clear=b"220 hello\r\n") as port, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = (socket.AF_INET6, 6, ("::1", closed.getsockname()[1], 0, 0)) if is_refused else (99, 6, ("::1", 1))
        found = [(dead[0], socket.SOCK_STREAM, dead[1], "", dead[2])] * 6
        found.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)))
        with mail.TimedConnection(time.monotonic() + 5, 2).connect(found) as wire:
            assert wire.getpeername() == ("127.0.0.1", port)


def test_none_of_a_servers_addresses_takes_the_time_of_those_after_it() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_server(("127.0.0.1", 0)) as open_:
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", x.getsockname()) for x in (full, full, open_)]
        with mail.TimedConnection(time.monotonic() + 1.2, 10).connect(found) as wire:
            assert wire.getpeername() == open_.getsockname()
        for each in waiting:
            each.close()


def test_a_mail_server_whose_addresses_all_let_nobody_in_is_given_up_in_time(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue is full, and it answers nothing."""
    monkeypatch.setattr(mail, "WHOLE_SECONDS", 0.4)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", full.getsockname())] * 4
        monkeypatch.setattr(mail.socket, "getaddrinfo", lambda *_, **__: found)
        outcome, seconds = mailed(settings, full.getsockname()[1], "plain")
        for each in waiting:
            each.close()
    assert outcome.state == "failed" and 0.3 < seconds < DRIP_SECONDS / 3
