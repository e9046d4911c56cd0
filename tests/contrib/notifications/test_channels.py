"""Chats and shared mailboxes: what they are told, where they may be, and forged rows."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from durableagents.contrib.notifications import channels, delivering
from durableagents.contrib.notifications.channels import ChannelBody
from durableagents.contrib.notifications.models import Channel, Delivery
from durableagents.outgoing import http
from durableagents.outgoing.mail import Outcome
from ledger.errors import Forbidden, InvalidInput
from tests.cases import each_case
from tests.contrib.notifications.mail_server import Room, allow
from tests.contrib.notifications.push_service import certificate
from tests.contrib.notifications.test_notices import deliver, soon
from tests.integration.approvals.setup import WHY, asked, boss, somebody
from tests.integration.runs.stage import Stage, now
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def channel(url: str) -> Any:
    fields = {"name": "#finance", "queue": "finance_po", "form": "webhook", "kinds": ["opened"]}
    body = ChannelBody(**fields, address=url, justification=WHY)
    return channels.add(body, by=boss())


def test_a_chat_is_told_of_its_queue_with_a_plain_text_and_an_id(stage: Stage, tools: Toolbox, room: Room) -> None:
    channel(room.url)
    approval = asked(stage, tools)
    deliver()
    ((headers, body),) = room.heard
    assert body["text"].startswith("*To decide: Pay, $5,000*") and body["unfurl_links"] is False
    assert f"<http://127.0.0.1:8000/inbox/{approval.pk}|Open>" in body["text"]
    assert headers["Idempotency-Key"] == str(Delivery.objects.get().message)


def test_retry_after_is_kept_to_and_a_redirect_is_followed_by_nobody(stage: Stage, tools: Toolbox, room: Room) -> None:
    channel(room.url)
    asked(stage, tools)
    room.answers = [(429, {"Retry-After": "600"}), (302, {"Location": room.url})]
    deliver()
    row = Delivery.objects.get()
    assert row.state == "waiting" and 590 < (row.due_at - now()).total_seconds() <= 600
    soon()
    deliver()
    row.refresh_from_db()
    assert row.state == "dead" and "redirect" in row.note and len(room.heard) == 2


INSIDE = (
    "https://127.0.0.1/x https://localhost/x https://10.1.2.3/x https://169.254.169.254/latest "
    "https://[::1]/x https://[::ffff:10.0.0.1]/x https://2130706433/x https://0x7f000001/x "
    "https://017700000001/x https://127.1/x https://0.0.0.0/x https://[fe80::1]/x https://[fd00::1]/x "
    "https://100.64.0.1/x https://[64:ff9b::7f00:1]/x https://[2002:7f00:1::]/x https://224.0.0.1/x "
    "https://[::127.0.0.1]/x https://[64:ff9b:1::808:808]/x https://[::ffff:0:127.0.0.1]/x "
    "https://192.88.99.1/x https://192.0.0.8/x https://[3fff::1]/x https://[5f00::1]/x"
).split()
SHAPES = [
    "http://example.com/x",
    "ftp://example.com",
    "https://",
    "https://user:pass@example.com/x",
    "https://example.com/#x",
    "https://exa mple.com/",
    "https://example.com:99999/",
    "file:///etc/passwd",
    "https://ex\u0430mple.com/",
    "https://example.com\\@127.0.0.1/",
]


@pytest.mark.parametrize("url", [*INSIDE, *SHAPES])
def test_no_address_leads_into_the_inside(stage: Stage, url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        channel(url)
    (error,) = refused.value.extra["errors"]
    assert error["field"] == "address" and not Channel.objects.exists()
    assert "leads to" not in error["problem"], "an inner name's address is not told"


def test_a_name_that_leads_elsewhere_the_next_time_is_judged_by_where_it_leads(
    stage: Stage, tools: Toolbox, room: Room, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: public when set, internal when sent. The connection goes to the address that was checked."""
    channel(room.url)
    asked(stage, tools)
    allow(settings)
    deliver()
    row = Delivery.objects.get()
    assert row.state == "dead" and room.heard == []
    port = int(room.url.split(":")[2].split("/")[0])
    asked_for: list[str] = []

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        asked_for.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))] if len(asked_for) == 1 else []

    allow(settings, "127.0.0.0/8")
    monkeypatch.setattr(http.socket, "getaddrinfo", look_up)
    outcome = delivering.post_to_chat(f"http://rebinding.example:{port}/x", {"text": "x"}, message=row.message)
    assert outcome.state == "sent" and asked_for == ["rebinding.example"]


def test_of_a_name_with_several_addresses_one_inside_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, 443)) for at in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(http.socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(http.AddressRefused, match="leads inside"):
        http.resolve(http.parse_url("https://both.example/x"))


def test_a_channel_that_somebody_forged_or_changed_is_told_nothing(stage: Stage, tools: Toolbox, room: Room) -> None:
    row = channel(room.url)
    Channel.objects.create(
        form="webhook",
        name="forged",
        address=row.address,
        shown="x",
        kinds=["opened"],
        set_by="user:boss",
        made_at=now(),
        changed_at=now(),
        queue=row.queue,
    )
    Channel.objects.filter(pk=row.pk).update(kinds=["opened", "question"])
    asked(stage, tools)
    deliver()
    assert room.heard == [] and not Delivery.objects.exists()


def test_nobody_but_an_administrator_sets_one(stage: Stage, room: Room) -> None:
    for role in ("operator", "auditor", "approver_finance"):
        by = somebody(f"u_{role}", role)
        body = ChannelBody(name="x", form="webhook", address=room.url, kinds=["failed"], justification=WHY)
        with pytest.raises(Forbidden):
            channels.add(body, by=by)
    assert room.heard == [] and not Channel.objects.exists()


@each_case(
    ("status", "state"),
    [
        (200, "sent"),
        (204, "sent"),
        (301, "refused"),
        (400, "refused"),
        (410, "refused"),
        (408, "failed"),
        (429, "failed"),
        (500, "failed"),
        (503, "failed"),
    ],
)
def test_what_an_answer_means(status: int, state: str) -> None:
    outcome: Outcome = http.outcome_of(status, None)
    assert outcome.state == state


def test_a_server_that_lets_us_wait_in_vain_is_left_alone_and_keeps_no_other_waiting(
    room: Room, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(settings, "127.0.0.0/8")
    monkeypatch.setattr(http, "STEP_SECONDS", 0.3)
    monkeypatch.setattr(http, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(http, "_silent", {})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        outcomes = [delivering.post_to_chat(url + path, {"text": "x"}, message=UUID(int=1)) for path in ("a", "b", "c")]
        assert [each.state for each in outcomes] == ["failed"] * 3 and "no answer:" in outcomes[0].why
        assert [each.retry_after for each in outcomes[1:]] == [http.SILENT_SECONDS] * 2
        with monkeypatch.context() as patient:  # so that the room answers in time
            patient.setattr(http, "STEP_SECONDS", 10.0)
            assert delivering.post_to_chat(room.url, {"text": "x"}, message=UUID(int=1)).state == "sent"
        silent.accept()
        with pytest.raises(BlockingIOError):
            silent.accept()
        for server in http._silent:
            http._silent[server] = 0.0
        assert "no answer:" in delivering.post_to_chat(url, {"text": "x"}, message=UUID(int=1)).why, (
            "after a while it is asked again"
        )


DRIP_SECONDS = 60.0  # at most; the test usually ends it sooner


@contextmanager
def dripping(
    context: ssl.SSLContext | None, drip: bytes, *, silent_seconds: float = 0.0, first: bytes = b"", clear: bytes = b""
) -> Iterator[int]:
    """Run a slow server: `clear`, STARTTLS, silence, the handshake, `first`, then `drip` repeatedly. Yield its port."""
    over = threading.Event()

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            near, _ = listening.accept()
            with near:
                near.sendall(clear)
                heard = b"" if clear else b"STARTTLS"
                while b"STARTTLS" not in heard and (more := near.recv(1024)):
                    heard += more
                over.wait(silent_seconds)
                ends, plain = time.monotonic() + DRIP_SECONDS, near
                if context is not None:
                    plain = context.wrap_socket(near, server_side=True)
                with plain:
                    plain.sendall(first)
                    while time.monotonic() < ends and not over.wait(0.05):
                        plain.sendall(drip)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=[listening], daemon=True)
        thread.start()
        yield listening.getsockname()[1]
    over.set()
    thread.join()


@pytest.fixture
def short(settings: Any, monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    allow(settings, "127.0.0.0/8")
    monkeypatch.setattr(http, "WHOLE_SECONDS", 0.6)
    monkeypatch.setattr(http, "STEP_SECONDS", DRIP_SECONDS)
    monkeypatch.setattr(http, "_silent", {})


def sent_to(scheme: str, port: int) -> tuple[Outcome, float]:
    began = time.monotonic()
    outcome = delivering.post_to_chat(f"{scheme}://localhost:{port}/", {"text": "x"}, message=UUID(int=1))
    return outcome, time.monotonic() - began


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "drip", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H", b"HTTP/1.1 200 OK\r\n"], ids=["continue", "byte", "head"]
)
@pytest.mark.parametrize("silent_seconds", [0.0, 1.0], ids=["at once", "slow handshake"])
def test_a_server_that_drips_is_cut_off_however_slowly_it_shakes_hands(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drip: bytes, silent_seconds: float
) -> None:
    certificate_, key = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate_))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_, key)
    with dripping(context, drip, silent_seconds=silent_seconds) as port:
        outcome, seconds = sent_to("https", port)
    assert outcome.state == "failed" and "no answer:" in outcome.why and seconds < DRIP_SECONDS / 2
    with dripping(None, drip) as port:
        outcome, seconds = sent_to("http", port)
    assert outcome.state == "failed" and seconds < DRIP_SECONDS / 2


def test_a_connection_that_breaks_within_the_body_counts_as_sent(short: None) -> None:
    def serve(listening: socket.socket) -> None:
        near, _ = listening.accept()
        near.recv(4096)
        near.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        threading.Event().wait(0.5)  # by then the status was read
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing sends a reset
        near.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, args=[listening], daemon=True)
        serving.start()
        outcome, _ = sent_to("http", listening.getsockname()[1])
        serving.join()
    assert outcome.state == "sent"


def test_an_answer_that_never_ends_is_not_heard_to_its_end(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WHOLE_SECONDS", 5.0)  # it must have begun by then
    with dripping(None, b"x", first=b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n") as port:
        outcome, seconds = sent_to("http", port)
    assert outcome.state == "sent" and seconds < DRIP_SECONDS / 2
