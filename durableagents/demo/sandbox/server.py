"""The process: HTTP and SMTP side by side on one event loop, from taking the ports to closing the store."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from . import mail
from .app import build
from .callbacks import Courier
from .faults import FaultBook
from .operations import known
from .settings import Settings
from .store import Store
from .web.wire import CuttableProtocol

HOST = "127.0.0.1"
BACKLOG = 1024
# Long enough for an answer that is being committed; a request held up by an injected latency is not waited for.
GRACE_SECONDS = 1
# Longer than a client's pool keeps a connection: the side that knows the connection is idle should close it.
KEEP_ALIVE_SECONDS = 75


class CantStart(Exception):
    """The sandbox can't start. The message is the line that the operator sees; the exit code is 2."""


class HttpServer(uvicorn.Server):
    """uvicorn's server without its signal handling, which would make a clean stop look like a crash."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises CantStart."""
    logging.basicConfig(level=logging.WARNING, format="sandbox: %(levelname)s %(message)s")
    with (
        _locked(settings.folder),
        _bound(settings.http_port) as http,
        _bound(settings.smtp_port) as smtp,
    ):
        asyncio.run(_serve(settings, http, smtp))


async def _serve(settings: Settings, http: socket.socket, smtp: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    store = Store(settings.database)
    try:
        store.open(loop)
    except (sqlite3.Error, OSError) as error:
        raise CantStart(f"can't use the store {settings.database}: {error}") from error
    faults = FaultBook(store, known())
    await faults.load()
    courier = Courier(store, faults)
    server = HttpServer(
        uvicorn.Config(
            build(store, faults, courier),
            http=CuttableProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, server)
    inbox = mail.Inbox(store, faults)
    smtp_server = await loop.create_server(lambda: mail.make_server(inbox), sock=smtp, backlog=BACKLOG)
    delivering = asyncio.create_task(courier.run())
    try:
        await server.serve(sockets=[http])
    finally:
        smtp_server.close()
        delivering.cancel()
        with suppress(asyncio.CancelledError):
            await delivering
        store.close()


def _stop(server: HttpServer) -> None:
    server.force_exit = server.should_exit  # the second signal doesn't wait
    server.should_exit = True


@contextmanager
def _bound(port: int) -> Iterator[socket.socket]:
    # The protocol is named because asyncio switches Nagle's delay (40 ms an answer) off only where it is.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with bound:
        # Connections of a killed predecessor linger in TIME_WAIT; they must not keep its port from us.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, port))
            bound.listen(BACKLOG)
        except OSError as error:
            raise CantStart(f"port {port} on {HOST} can't be used: {error.strerror}") from error
        yield bound


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the store for one sandbox, since two would send callbacks twice. The lock ends with the process."""
    try:
        if not folder.parent.exists():
            folder.parent.mkdir(parents=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise CantStart(f"can't use the folder {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CantStart(f"another sandbox is running on {folder}") from None
    finally:
        os.close(lock)
