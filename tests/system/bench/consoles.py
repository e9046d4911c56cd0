"""Many open consoles: each a socket and a page that reloads when notified, as in a browser."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import psutil
from websockets.asyncio.client import connect

CONSOLES, RINGS_A_SECOND = 200, 1000
GAP_SECONDS = 0.5
WARM_UP_SECONDS, SECONDS = 5.0, 20.0
MAX_SHARE = 0.25
COLUMNS = (
    ("consoles", "consoles"),
    ("rings/s", "rings"),
    ("reads/s", "reads"),
    ("messages/s", "messages"),
    ("of a core", "share"),
    ("told → shown p50 s", "behind"),
    ("busy", "busy"),
    ("", "missed"),
)
_AS_OF = re.compile(rb'data-as-of="(\d+)"')


class Console:
    """One console. `behind` is the age of changes when they appeared on it."""

    def __init__(self, port: int, cookie: str, path: str) -> None:
        self._port, self._cookie, self._path = port, cookie, path
        self._told_at = self._as_of = 0
        self._is_told = asyncio.Event()
        self.reads = self.messages = self.busy = 0
        self.behind: list[float] = []

    async def open(self) -> None:
        address = f"127.0.0.1:{self._port}"
        async with connect(
            f"ws://{address}/ws/lists", origin=f"http://{address}", additional_headers={"Cookie": self._cookie}
        ) as link:  # type: ignore[arg-type]
            reading = asyncio.create_task(self._read_again())
            try:
                async for text in link:
                    self.messages += 1
                    self._told_at = max(self._told_at, json.loads(text)["at"])
                    self._is_told.set()
            finally:
                reading.cancel()

    async def _read_again(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while True:
            await self._is_told.wait()
            self._is_told.clear()
            began = time.monotonic()
            try:
                await self._read(reader, writer)
            except (OSError, asyncio.IncompleteReadError):  # kept alive for some seconds only
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                await self._read(reader, writer)
            await asyncio.sleep(max(0.0, began + GAP_SECONDS - time.monotonic()))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted = max(self._told_at, self._as_of)
        query = urlencode({"fragment": "live", "since": wanted})
        writer.write(
            f"GET {self._path}?{query} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nCookie: "
            f"{self._cookie}\r\nHX-Trigger: live\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        body = await reader.readexactly(int(length[1])) if length else b""
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            self.busy += 1
            return
        self.reads += 1
        found = _AS_OF.search(body)
        if found is None or int(found[1]) < wanted:
            raise AssertionError("a console was shown less than it had been told of")
        self._as_of = int(found[1])
        self.behind.append(time.time() - wanted / 1e6)


async def _watch(port: int, cookies: Sequence[str], path: str, rings: int) -> dict[str, Any]:
    from runs.journal.notify import AsyncBell

    web = _serving(port)
    consoles = [Console(port, cookie, path) for cookie in cookies]
    tasks = [asyncio.create_task(each.open()) for each in consoles]

    async def ring() -> None:
        runs, seq = [uuid4() for _ in range(32)], 0
        async with AsyncBell() as bell:
            while True:
                began = time.monotonic()
                for _ in range(rings // 100):
                    seq += 1
                    bell.ring(runs[seq % 32], seq)
                await asyncio.sleep(max(0.0, began + 0.01 - time.monotonic()))

    tasks.append(asyncio.create_task(ring()))
    await asyncio.sleep(WARM_UP_SECONDS + len(cookies) * 0.02)
    for each in consoles:
        each.reads = each.messages = each.busy = 0
        each.behind.clear()
    used, began = _cpu(web), time.monotonic()
    await asyncio.sleep(SECONDS)
    share, took = (_cpu(web) - used) / (time.monotonic() - began), time.monotonic() - began
    broken = [task.exception() for task in tasks if task.done() and not task.cancelled()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if broken:
        raise RuntimeError(f"{len(broken)} of the consoles broke: {broken[0]!r}")
    behind = sorted(each for console in consoles for each in console.behind)
    found = {
        "consoles": len(cookies),
        "rings": rings,
        "reads": round(sum(each.reads for each in consoles) / took, 1),
        "messages": round(sum(each.messages for each in consoles) / took, 1),
        "share": round(share, 3),
        "behind": round(behind[len(behind) // 2], 2) if behind else None,
        "busy": sum(each.busy for each in consoles),
    }
    return {**found, **({"missed": f"{share:.0%} of a core"} if share > MAX_SHARE else {})}


def _serving(port: int) -> psutil.Process:
    return next(
        each
        for each in psutil.Process().children(recursive=True)
        if "web" in each.cmdline() and "--fd" in each.cmdline()
    )


def _cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def measured(folder: Path) -> list[dict[str, Any]]:
    from django.conf import settings
    from django.db import connections

    from tests.system.bench.crew import web

    name = settings.SESSION_COOKIE_NAME
    cookies = [f"{name}={person('operator', f'olga{n}').cookies[name].value}" for n in range(CONSOLES)]
    connections.close_all()
    rows = []
    for count in (20, CONSOLES):
        with web(folder) as port:
            rows.append(asyncio.run(_watch(port, cookies[:count], "/runs", RINGS_A_SECOND)))
    return rows


def person(role: str, name: str = "bench-olga") -> Any:
    from django.contrib.auth.models import Group, User
    from django.test import Client

    user, _ = User.objects.get_or_create(username=name)
    user.groups.set([Group.objects.get_or_create(name=role)[0]])
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(user)
    return client
