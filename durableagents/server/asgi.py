"""The web process: Django over HTTP, Channels over websockets, and a heartbeat while it lives."""

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

# Django has to be set up before anything below may be imported.
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
from durableagents.server.routing import websocket_urlpatterns  # noqa: E402
from runs.fleet import members, version_changes  # noqa: E402
from runs.journal import pooler, warm  # noqa: E402

T = TypeVar("T")
log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
TRIM_EVERY_BEATS = 2
WARM = 2  # connections that have done everything once before the first request
_M_MMAP_THRESHOLD = -3  # malloc.h


def pool_connections() -> None:
    """Give this process a pool: Django's kept connections belong to a thread each, and a request takes whichever thread
    is free.

    Only here: the pool does not survive the forks of the workers, and this process never forks.
    An attempt is given up soon after a failure, so that the first request after an outage connects at once
    rather than waiting out a grown back-off.
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
    # Django gives the pool its check itself, and no way to give another.
    connections["default"].pool._check = _sound  # type: ignore[attr-defined]


def _sound(link: psycopg.Connection[Any]) -> None:
    """Raises OperationalError if the server hung up while nobody looked. The others that lay idle are looked at once
    then: met one by one, each request would find some of them and wait longer and longer in between."""
    try:
        ConnectionPool.check_connection(link)
    except psycopg.OperationalError:
        pool: ConnectionPool[Any] = connections["default"].pool  # type: ignore[attr-defined]
        pool.check()
        raise


def _return_large_blocks_at_once() -> None:
    """A password's hash takes 19 MiB for a moment. The C library, once it has seen such a block, would keep the next
    ones in the heap of whichever thread asked; with the threshold set by hand each goes back to the system when it is
    freed."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(_M_MMAP_THRESHOLD, 1 << 20)


class SameOrigin:
    """Lets only our own pages open sockets. Browsers send cookies along from every page on the same host, whatever
    its port, and a page elsewhere on it (the sandbox's, say) has no business listening here.
    """

    def __init__(self, app: Any) -> None:
        self._app = AllowedHostsOriginValidator(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        scheme, _, origin = headers.get(b"origin", b"").partition(b"://")
        # A page that came over http must not listen to an installation that is served over https.
        is_ours = origin and origin == headers.get(b"host") and (scheme == b"https" or scope.get("scheme") != "wss")
        app = self._app if is_ours else WebsocketDenier.as_asgi()
        await app(scope, receive, send)


class Lifespan:
    """Tells the fleet that this process lives, and says goodbye when the server stops."""

    def __init__(self) -> None:
        # One thread, for the heart alone: a request that waits for the database must not delay a beat, and
        # the fleet keeps one connection per thread that beats.
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
        """Every few seconds, from the event loop: a loop that is stuck is not alive."""
        for beats in itertools.count(1):
            await self._attempt(members.beat, kind="web", pid=os.getpid())
            if beats % TRIM_EVERY_BEATS == 0:
                await self._attempt(child_processes.give_memory_back)
            if not self._is_permitted and (refusal := await self._attempt(self._refusal)):
                log.critical("refused: %s", refusal)
                signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(BEAT_SECONDS)

    def _refusal(self) -> str | None:
        """Why this process must not serve. While the database is away nobody can tell, and the heart asks again."""
        try:
            reason = pooler.refusal()
        except OperationalError:
            return None
        self._is_permitted = True
        return reason

    async def _attempt(self, act: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Do `act` in the heart's thread. An outage of the database is its own business (it answers False);
        whatever else goes wrong is logged and must not stop the heart."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(act, *args, **kwargs))
        except Exception:
            log.exception("heartbeat")
            return None


_http = Handler()
application = ProtocolTypeRouter(
    {
        "http": Proxies(Headers(BodyLimit(Admission(_http)))),
        "websocket": Proxies(SameOrigin(URLRouter(websocket_urlpatterns))),
        "lifespan": Lifespan(),
    }
)
