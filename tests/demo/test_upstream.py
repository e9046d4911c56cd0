"""What an HTTP outcome means: not sent, no answer, refused, unreadable. Judged on real sockets."""

from __future__ import annotations

import re
import socket
import traceback

import pytest
from pydantic import BaseModel, SecretStr

from durableagents import BusinessFailure, NotSent, ToolCall, TransportError
from durableagents.demo import upstream

from .conftest import RUN_ID, MakeCall
from .wire import ScriptedServer, answering, reset


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
    # Who sent it, and when, is told beside the request: it is the other side's record that has an interest in it.
    first, second = (re.sub(rb"X-Sender: [^\r]*\r\n", b"", each) for each in heard)
    assert first == second and b"X-Sender" not in first


async def test_a_call_without_a_key_sends_none(make_call: MakeCall, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(answering(http("200 OK", '{"word": "yes"}'))) as server:
        await post(server, make_call("say", key=None), monkeypatch)
        assert b"idempotency-key" not in server.heard.get(timeout=30).lower()


async def test_a_refused_connection_proves_that_nothing_was_sent(
    call: ToolCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    monkeypatch.setenv("SANDBOX_PORT", str(port))
    with pytest.raises(NotSent):
        await upstream.post("/say", {}, call, Said)


async def test_proxies_of_the_environment_are_left_alone(call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with ScriptedServer(answering(http("200 OK", '{"word": "yes"}'))) as server:
        assert (await post(server, call, monkeypatch)).word == "yes"


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"SSH-2.0-OpenSSH\r\n"],
)
async def test_a_connection_that_ends_early_is_no_answer(
    answer: bytes, call: ToolCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(answering(answer)) as server:
        with pytest.raises(TransportError):
            await post(server, call, monkeypatch)


async def test_a_reset_is_no_answer(call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    def dialogue(connection: socket.socket, server: ScriptedServer) -> None:
        answering(b"")(connection, server)
        reset(connection)

    with ScriptedServer(dialogue) as server:
        with pytest.raises(TransportError):
            await post(server, call, monkeypatch)


async def test_a_connection_that_is_gone_as_soon_as_it_stands_is_no_answer(
    call: ToolCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library asks the socket for its name, and there is none any more."""

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


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
async def test_come_back_later_is_no_answer(status: int, call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(answering(http(f"{status} X", '{"detail": "busy"}'))) as server:
        with pytest.raises(TransportError, match="busy"):
            await post(server, call, monkeypatch)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
async def test_a_refusal_is_upstreams_own_words(status: int, call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = '{"title": "No", "detail": "vendor_id: no such vendor", "field": "vendor_id"}'
    with ScriptedServer(answering(http(f"{status} X", problem, "application/problem+json"))) as server:
        with pytest.raises(BusinessFailure) as refused:
            await post(server, call, monkeypatch)
    assert refused.value.message == "vendor_id: no such vendor"
    assert refused.value.code == f"http_{status}"
    assert refused.value.details == {"status": status, "field": "vendor_id"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("plain words", "plain words"),
        ("", "X"),
        ("x" * 9000, "x" * 500),
        ("[" * 5000, "[" * 500),
        ('{"detail": 7}', "X"),
    ],
)
async def test_a_refusal_in_any_other_form_is_still_short_words(
    body: str, said: str, call: ToolCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(answering(http("422 X", body, "text/plain"))) as server:
        with pytest.raises(BusinessFailure) as refused:
            await post(server, call, monkeypatch)
    assert refused.value.message == said


@pytest.mark.parametrize("body", ["", "no json", "[]", '{"word": 7, "secret": "sk_canary"}', '{"secret": "sk_canary"}'])
async def test_an_unreadable_answer_stops_without_quoting_it(
    body: str, call: ToolCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(answering(http("201 Created", body))) as server:
        with pytest.raises(upstream.UnreadableAnswer) as stopped:
            await post(server, call, monkeypatch)
    shown = "".join(traceback.format_exception(stopped.value))
    assert "sk_canary" not in shown and "/say answered" in shown


async def test_a_redirect_is_not_followed(call: ToolCall, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    with ScriptedServer(answering(moved)) as server:
        with pytest.raises(upstream.UnreadableAnswer, match="307"):
            await post(server, call, monkeypatch)
