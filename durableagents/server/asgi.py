"""The web process: Django over HTTP, Channels over websockets, and a heartbeat."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import django
import psycopg
from psycopg_pool import ConnectionPool

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableagents.settings")
django.setup(set_prefix=False)

# Django must be set up before the modules below are imported.
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator, WebsocketDenier  # noqa: E402
from django.conf import settings  # noqa: E402
from django.db import OperationalError, connections  # noqa: E402

from durableagents import databases  # noqa: E402
from durableagents.server import child_processes  # noqa: E402
from durableagents.server.admission import Admission  # noqa: E402
from durableagents.server.handler import Handler  # noqa: E402
from durableagents.server.limits import BodyLimit, Headers, Message, Receive, Scope, Send  # noqa: E402
from durableagents.server.proxies import Proxies  # noqa: E402
from durableagents.server.requests import Requests  # noqa: E402
from durableagents.server.routing import websocket_urlpatterns  # noqa: E402
from durableagents.server.streams import Streams  # noqa: E402
from runs import features  # noqa: E402
from runs.fleet import members, version_changes  # noqa: E402
from runs.journal import pooler, warm  # noqa: E402

T = TypeVar("T")
log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
TRIM_EVERY_BEATS = 2
WARM = 2  # connections warmed up before the first request
_M_MMAP_THRESHOLD = -3  # constant from malloc.h


def pool_connections() -> None:
    """Give this process a connection pool.

    Django's persistent connections belong to threads, and a request may use any free thread. Only the web process has a
    pool, since pools don't survive the forks of workers. Attempts end soon after a failure, so that the first request
    after an outage connects at once instead of waiting out a back-off.
    """
    default = connections.settings["default"]
    default["CONN_MAX_AGE"] = 0
    databases.limit_statements(default["OPTIONS"], settings.DURABLEAGENTS)
    default["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": 10,
        "timeout": 2.5,
        "reconnect_timeout": 1.0,
    }
    # Django sets the pool's check itself, and that can't be configured.
    connections["default"].pool._check = _sound  # type: ignore[attr-defined]


def _sound(link: psycopg.Connection[Any]) -> None:
    """Check a connection. Raises OperationalError.

    If this connection is broken, all idle ones are checked at once, because the next requests would get them.
    """
    try:
        ConnectionPool.check_connection(link)
    except psycopg.OperationalError:
        pool: ConnectionPool[Any] = connections["default"].pool  # type: ignore[attr-defined]
        pool.check()
        raise


def _return_large_blocks_at_once() -> None:
    """Set malloc's mmap threshold, so that the 19 MiB of a password's hash return to the system when freed.

    By default the C library would keep such blocks in each thread's heap.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(_M_MMAP_THRESHOLD, 1 << 20)


class SameOrigin:
    """Allows WebSockets only from our own pages. Browsers send cookies from every page of the host, on any port."""

    def __init__(self, app: Any) -> None:
        self._app = AllowedHostsOriginValidator(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        scheme, _, origin = headers.get(b"origin", b"").partition(b"://")
        # A page loaded over http must not connect to an installation served over https.
        is_ours = origin and origin == headers.get(b"host") and (scheme == b"https" or scope.get("scheme") != "wss")
        app = self._app if is_ours else WebsocketDenier.as_asgi()
        await app(scope, receive, send)


class Lifespan:
    """Reports this process to the fleet, and signs it off when the server stops."""

    def __init__(self) -> None:
        # The heartbeat has one thread of its own. Requests that wait for the database must not delay it, and the fleet
        # keeps one connection per beating thread.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="heartbeat")
        self._is_permitted = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        beating: asyncio.Task[None] | None = None
        while True:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                pool_connections()
                _return_large_blocks_at_once()
                refusal = await self._attempt(self._refusal)
                if refusal:
                    await send({"type": "lifespan.startup.failed", "message": refusal})
                    return
                await self._attempt(warm.rehearse_pool, WARM)
                await self._attempt(_http.rehearse)
                await self._attempt(warm.load_and_freeze)
                await self._attempt(version_changes.say_changes)
                beating = asyncio.create_task(self._beat())
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if beating is not None:
                    beating.cancel()
                    await asyncio.gather(beating, return_exceptions=True)
                await self._attempt(members.forget, "web", os.getpid())
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _beat(self) -> None:
        """Beat every few seconds from the event loop, so that a process with a stuck loop doesn't count as alive."""
        for beats in itertools.count(1):
            await self._attempt(members.beat, kind="web", pid=os.getpid())
            if beats % TRIM_EVERY_BEATS == 0:
                await self._attempt(child_processes.give_memory_back)
            if not self._is_permitted and (refusal := await self._attempt(self._refusal)):
                log.critical("refused: %s", refusal)
                signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(BEAT_SECONDS)

    def _refusal(self) -> str | None:
        """Return why this process must not serve; None if it may, or while the database is unreachable (then this is
        called again).
        """
        try:
            reason = pooler.refusal() or features.serving_refusal("web")
        except OperationalError:
            return None
        self._is_permitted = True
        return reason

    async def _attempt(self, act: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Run `act` in the heartbeat's thread.

        Its errors are logged and must not stop the heartbeat; `act` handles outages.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(act, *args, **kwargs))
        except Exception:
            log.exception("heartbeat")
            return None


_http = Handler()
streams = Streams(Admission(_http))
application = ProtocolTypeRouter(
    {
        "http": Proxies(Requests(Headers(BodyLimit(streams)))),
        "websocket": Proxies(SameOrigin(URLRouter(websocket_urlpatterns))),
        "lifespan": Lifespan(),
    }
)
