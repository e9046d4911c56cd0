"""Each request has an id and, if its caller says so, a trace; log lines carry both and no secrets."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import Any

from durableagents import logs
from durableagents.server.limits import Scope, answer
from durableagents.server.requests import Requests
from ledger import context
from ledger.web import problems

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def ask(path: str = "/api/v1/runs", *headers: tuple[bytes, bytes]) -> tuple[dict[str, Any], context.Request]:
    """Send a request to an app that refuses it; return the problem with the id in the header, and the context."""
    seen: list[context.Request] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        current = context.request.get()
        assert current is not None
        current.actor = "key:7"
        seen.append(current)
        await answer(scope, send, problems.busy())

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing is read")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers)}
    await Requests(app)(scope, receive, send)
    assert context.request.get() is None
    data = json.loads(sent[1]["body"])
    assert dict(sent[0]["headers"])[b"x-request-id"].decode() == data["request_id"] == seen[0].id
    return data, seen[0]


async def test_a_well_formed_request_id_is_taken_over_and_any_other_replaced() -> None:
    for good in (b"a", b"7f9c24e5-9a0e-4b6e-9f6e-0d5a1b2c3d4e", b"x" * 128):
        assert (await ask("/api/v1/runs", (b"x-request-id", good)))[1].id == good.decode()
    for bad in (b"", b"x" * 129, b"a b", b"a\r\nSet-Cookie: x=1", b"<script>", "ü".encode(), b'"}', b"a\x00"):
        assert len((await ask("/api/v1/runs", (b"x-request-id", bad)))[1].id) == 32
    assert len((await ask("/api", (b"x-request-id", b"a"), (b"x-request-id", b"b")))[1].id) == 32


async def test_a_traceparent_is_taken_over_or_ignored_never_refused() -> None:
    for good in (f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01-what.comes.later"):
        _, request = await ask("/api", (b"traceparent", good.encode()))
        assert request.trace_id == TRACE
    for bad in (
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}",
        "00-" + "f" * 10_000,
        "",
    ):
        _, request = await ask("/api", (b"traceparent", bad.encode()))
        assert request.trace_id == "", bad
    twice = [(b"traceparent", f"00-{TRACE}-{SPAN}-01".encode())] * 2
    assert (await ask("/api", *twice))[1].trace_id == ""


def handler(formatter: logging.Formatter) -> tuple[logging.Handler, StringIO]:
    made = logging.StreamHandler(written := StringIO())
    made.setFormatter(formatter)
    made.addFilter(logs.Context())
    made.addFilter(logs.LinksStaySecret())
    return made, written


async def test_a_request_has_one_line_with_its_id_and_without_secrets() -> None:
    web = logging.getLogger("durableagents.web")
    as_json, objects = handler(logs.OneObject())
    as_text, lines = handler(logs.OneLine())
    web.addHandler(as_json)
    web.addHandler(as_text)
    level = web.level
    web.setLevel(logging.INFO)
    try:
        parent = (b"traceparent", f"00-{TRACE}-{SPAN}-01".encode())
        await ask("/api/v1/callbacks/s3cr3t-token", (b"x-request-id", b"abc-1"), parent)
        await ask("/api/v1/nowhere\n2026-01-01 ERROR forged")
        await ask("/healthz")
        await ask("/readyz")
    finally:
        web.removeHandler(as_json)
        web.removeHandler(as_text)
        web.setLevel(level)
    first, second = (json.loads(line) for line in objects.getvalue().splitlines())
    wanted = {"method": "POST", "status": 503, "actor": "key:7", "request_id": "abc-1", "trace_id": TRACE}
    assert first.items() >= wanted.items() and first["ms"] >= 0 and first["path"] == "/api/v1/callbacks/…"
    assert second["path"] == "/api/v1/nowhere%0A2026-01-01%20ERROR%20forged" and len(lines.getvalue().splitlines()) == 2
    assert "s3cr3t" not in objects.getvalue() + lines.getvalue()
    assert lines.getvalue().splitlines()[0].endswith(f"[request_id=abc-1 trace_id={TRACE}]")


def test_a_line_about_a_run_names_run_trace_and_epoch() -> None:
    as_json, objects = handler(logs.OneObject())
    log = logging.Logger("runs.test")
    log.addHandler(as_json)
    run = "0198c0de-0000-7000-8000-000000000001"
    log.warning("run %s: can't be claimed\nERROR forged", run)
    token = context.drive.set(context.Drive(run, TRACE, 3))
    try:
        log.info("a tool says %s", "}", extra={"fields": {"message": "forged", "level": "CRITICAL"}})
        try:
            raise ValueError("a bug")
        except ValueError:
            log.exception("it failed")
    finally:
        context.drive.reset(token)
    named, driven, failed = (json.loads(line) for line in objects.getvalue().splitlines())
    assert named["run_id"] == run and "epoch" not in named
    assert (driven["run_id"], driven["trace_id"], driven["epoch"]) == (run, TRACE, 3)
    assert driven["message"] == "a tool says }" and driven["level"] == "INFO"
    assert failed["exception"].endswith("ValueError: a bug")
