from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from durableagents.server.bounded_protocols import BoundedHttp, BoundedSocket
from tests.conftest import free_ports

STALL_SECONDS = 0.6
PIECE = bytes(100_000)
PIECES = 250  # more than the kernel buffers for a client
TAKEN = b"\xfftaken\xff"  # comes last

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)
WAYS = pytest.mark.parametrize("opening", [REQUEST, HANDSHAKE], ids=["http", "websocket"])


async def application(scope: Any, receive: Any, send: Any) -> None:
    pieces = [PIECE] * PIECES + [TAKEN]
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        for piece in pieces:
            await send({"type": "websocket.send", "bytes": piece})
        await send({"type": "websocket.close"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": piece is not TAKEN})


def count_no_stalls() -> None:
    """Limit each step of the loop's clock: client and server share the loop, so a stalled machine must not count."""
    loop = asyncio.get_running_loop()
    real = loop.time
    seen = found = real()

    def time() -> float:
        nonlocal seen, found
        before, seen = seen, real()
        found += min(seen - before, 0.05)
        return found

    loop.time = time  # type: ignore[method-assign]


@asynccontextmanager
async def served() -> AsyncIterator[tuple[int, Collection[object]]]:
    """Run a server with a short patience; yield its port and its connections."""
    count_no_stalls()
    http = type("Http", (BoundedHttp,), {"stall_seconds": STALL_SECONDS})
    socket = type("Socket", (BoundedSocket,), {"stall_seconds": STALL_SECONDS})
    (port,) = free_ports(1)
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            port=port,
            http=http,
            ws=socket,
            lifespan="off",
            log_level="critical",
            ws_per_message_deflate=False,
        )
    )
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.005)
    try:
        yield port, server.server_state.connections
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def client(port: int, opening: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A client that has sent its request. It reads a little ahead, then only what it is told to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(opening)
    try:
        yield reader
    finally:
        writer.transport.abort()


async def until_empty(connections: Collection[object]) -> float:
    """Wait until no connection is left; return the time."""
    async with asyncio.timeout(20):
        while connections:  # noqa: ASYNC110  what is measured is when it happens
            await asyncio.sleep(0.005)
    return asyncio.get_running_loop().time()


async def is_taken_whole(reader: asyncio.StreamReader, *, slowly_for: float = 0.0) -> bool:
    began, last = asyncio.get_running_loop().time(), b""
    while TAKEN not in last:
        try:
            part = await reader.read(1_000_000)
        except ConnectionResetError:
            return False
        if not part:
            return False
        last = last[-len(TAKEN) :] + part
        if asyncio.get_running_loop().time() - began < slowly_for:
            await asyncio.sleep(STALL_SECONDS / 20)
    return True


@WAYS
async def test_who_does_not_take_the_answer_is_let_go(opening: bytes) -> None:
    async with served() as (port, connections), client(port, opening) as reader:
        await reader.readexactly(10)
        began = asyncio.get_running_loop().time()
        assert len(connections) == 1
        assert await until_empty(connections) - began > STALL_SECONDS / 2, "it was given time"
        assert not await is_taken_whole(reader)


@WAYS
async def test_who_is_slow_gets_all_of_it(opening: bytes) -> None:
    """The total time doesn't matter, only how long nothing is taken."""
    async with served() as (port, connections):
        async with client(port, opening) as reader:
            began = asyncio.get_running_loop().time()
            assert await is_taken_whole(reader, slowly_for=1.5 * STALL_SECONDS)
            assert asyncio.get_running_loop().time() - began > STALL_SECONDS
        await until_empty(connections)
