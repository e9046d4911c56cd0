"""HTTP and SMTP calls on real sockets: not sent, no answer, refused, unreadable, unknown."""

from __future__ import annotations

import re
import socket
from email.message import EmailMessage

import pytest
from pydantic import BaseModel, SecretStr

from durableagents import BusinessFailure, NotSent, ToolCall, TransportError
from durableagents.demo import smtp, upstream
from tests.cases import each_case

from .conftest import RUN_ID, MakeCall
from .wire import Dialogue, ScriptedServer, answering, smtp_saying


class Said(BaseModel):
    word: str
    secret: SecretStr | None = None


def http(status: str, body: str, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body.encode())}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


@pytest.fixture
def call(make_call: MakeCall) -> ToolCall:
    return make_call("say", key="da-key")


async def post(server: ScriptedServer, call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setenv("SANDBOX_PORT", str(server.port))
    return await upstream.post("/say", {"b": "ü", "a": 1, "n": None}, call, Said)


async def test_an_answer_is_read_and_the_request_says_who_asks(call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(answering(http("201 Created", '{"word": "yes", "more": 1}'))) as server:
        assert (await post(server, call, monkeypatch)).word == "yes"
        head, _, body = server.heard.get(timeout=30).partition(b"\r\n\r\n")
    assert body == '{"a":1,"b":"ü","n":null}'.encode()
    lines = head.decode().lower().split("\r\n")
    assert "idempotency-key: da-key" in lines
    assert f"x-run-id: {RUN_ID}" in lines and f"x-trace-id: {'5' * 32}" in lines


async def test_a_repeat_sends_the_same_bytes(call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(answering(http("503 Unavailable", "{}"))) as server:
        heard = []
        for _ in range(2):
            with pytest.raises(TransportError):
                await post(server, call, monkeypatch)
            heard.append(server.heard.get(timeout=30))
    # Sender and time are sent in a header, for the sandbox's record only.
    first, second = (re.sub(rb"X-Sender: [^\r]*\r\n", b"", each) for each in heard)
    assert first == second and b"X-Sender" not in first


async def test_a_refused_connection_sent_nothing(call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    monkeypatch.setenv("SANDBOX_PORT", str(port))
    with pytest.raises(NotSent):
        await upstream.post("/say", {}, call, Said)


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"SSH-2.0-OpenSSH\r\n"],
)
async def test_an_early_end_is_no_answer(answer: bytes, call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(answering(answer)) as server:
        with pytest.raises(TransportError):
            await post(server, call, monkeypatch)


async def test_a_connection_closed_at_once_is_no_answer(call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library asks the closed socket for its name and finds none."""

    def of_no_socket(stream: object, info: str) -> object:
        return getattr(None, "getpeername")()  # noqa: B009 (the very error that the library lets through)

    monkeypatch.setattr("httpcore._backends.anyio.AnyIOStream.get_extra_info", of_no_socket)
    with ScriptedServer(answering(http("200 OK", '{"word": "yes"}'))) as server:
        with pytest.raises(TransportError, match="reset at once"):
            await post(server, call, monkeypatch)


async def test_silence_is_no_answer(make_call: MakeCall, monkeypatch: pytest.MonkeyPatch) -> None:
    def dialogue(connection: socket.socket, server: ScriptedServer) -> None:
        answering(b"")(connection, server)
        connection.recv(1)  # until the client gives up

    with ScriptedServer(dialogue) as server:
        with pytest.raises(TransportError):
            await post(server, make_call("say", timeout=0.2), monkeypatch)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
async def test_a_refusal_is_upstreams_own_words(status: int, call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = '{"title": "No", "detail": "vendor_id: no such vendor", "field": "vendor_id"}'
    with ScriptedServer(answering(http(f"{status} X", problem, "application/problem+json"))) as server:
        with pytest.raises(BusinessFailure) as refused:
            await post(server, call, monkeypatch)
    assert refused.value.message == "vendor_id: no such vendor"
    assert refused.value.code == f"http_{status}"
    assert refused.value.details == {"status": status, "field": "vendor_id"}


FINE = [b"220 hello\r\n", b"250 hi\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n"]
PHASES = ["greeting", "EHLO", "MAIL FROM", "RCPT TO", "DATA"]


def message(text: str = "Hello\n") -> EmailMessage:
    made = EmailMessage()
    made["From"] = "Onboarding <onboarding@us.example>"
    made["To"] = "vendor@them.example"
    made["Subject"] = "Welcome"
    made.set_content(text)
    return made


def deliver(dialogue: Dialogue, text: str = "Hello\n", timeout: float = 5.0) -> tuple[str, list[bytes]]:
    with ScriptedServer(dialogue) as server:
        receipt = smtp.deliver(
            message(text), to="vendor@them.example", host="127.0.0.1", port=server.port, timeout=timeout
        )
    return receipt, list(server.heard.queue)


def test_a_mail_that_is_taken_gives_the_servers_receipt() -> None:
    receipt, heard = deliver(smtp_saying(FINE, after_dot=b"250 queued as 7\r\n"))
    assert receipt == "250 queued as 7"
    assert heard[1:3] == [b"mail FROM:<onboarding@us.example>\r\n", b"rcpt TO:<vendor@them.example>\r\n"]
    assert heard[-1] == b"QUIT\r\n"


def test_dots_at_line_starts_are_doubled_and_lines_end_in_crlf() -> None:
    _, heard = deliver(smtp_saying(FINE), ".\n..\n.hidden\nplain.\n")
    body = heard[4].split(b"\r\n\r\n", 1)[1]
    assert body == b"..\r\n...\r\n..hidden\r\nplain.\r\n"


@each_case("phase", range(5))
def test_a_connection_lost_before_the_dot_is_not_sent(phase: int) -> None:
    with pytest.raises(NotSent):
        deliver(smtp_saying([*FINE[:phase], None]))


@each_case("phase", range(5))
def test_a_5xx_before_the_dot_is_a_refusal(phase: int) -> None:
    with pytest.raises(BusinessFailure) as refused:
        deliver(smtp_saying([*FINE[:phase], b"550 no such user\r\n"]))
    assert refused.value.code == "smtp_550"
    assert refused.value.details == {"phase": PHASES[phase]}
    assert "no such user" in refused.value.message


@each_case("is_reset", [False, True])
def test_a_connection_lost_after_the_dot_is_unknown(is_reset: bool) -> None:
    with pytest.raises(TransportError):
        deliver(smtp_saying(FINE, after_dot=None, is_reset=is_reset))


def silent(until: int) -> Dialogue:
    def dialogue(connection: socket.socket, server: ScriptedServer) -> None:
        reader = connection.makefile("rb")
        for n, reply in enumerate(FINE[:until]):
            if n:
                reader.readline()
            connection.sendall(reply)
        while reader.readline():
            pass

    return dialogue


def test_silence_before_the_dot_is_not_sent() -> None:
    with pytest.raises(NotSent):
        deliver(silent(3), timeout=0.3)


def test_silence_after_the_dot_is_unknown() -> None:
    with pytest.raises(TransportError, match="timed out"):
        deliver(silent(5), timeout=4)  # all phases before the dot; the server hangs up after five
