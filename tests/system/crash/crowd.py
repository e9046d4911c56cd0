"""Clients that mean no good, in a process of their own: `python -m tests.system.crash.crowd PORT SLOW GREEDY GUESSING
SECONDS`.

Only to this host, only so many, only so long. What they were told is printed as JSON: kind and status, how often. Each
has an address of its own in 127/8, as a botnet would, so that no bound on one address stops them together.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from urllib.parse import quote

BOMB = b'{"a":[' + b"[]," * 330_000 + b"0]}"
SMALL_BOMB = b'{"a":[' + b"[]," * 20_000 + b"0]}"
_PAUSE_SECONDS = 0.5


class Crowd:
    """All of them, until the time is over."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port, self._until = port, time.monotonic() + seconds
        self.told: Counter[str] = Counter()

    async def gather(self, slow: int, greedy: int, guessing: int) -> None:
        kinds = [(self.slow, slow), (self.greedy, greedy), (self.guessing, guessing)]
        await asyncio.gather(*(self._go_on(act, n) for act, count in kinds for n in range(count)))

    async def _go_on(self, act: object, n: int) -> None:
        kind = act.__name__  # type: ignore[attr-defined]
        chance = random.Random(f"{kind} {n}")
        source = f"127.{10 + len(kind)}.{1 + n // 250}.{1 + n % 250}"
        while (left := self._until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await act(source, chance)  # type: ignore[operator]
                    await asyncio.sleep(_PAUSE_SECONDS * chance.random() * 2)
            except TimeoutError:
                return
            except (OSError, asyncio.IncompleteReadError, IndexError):
                self.told[f"{kind} cut"] += 1
                await asyncio.sleep(_PAUSE_SECONDS)

    async def slow(self, source: str, chance: random.Random) -> None:
        """Begins, and drips."""
        begun = chance.choice(
            [
                b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
                b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n",
                b"GET /ws/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: ",
            ]
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(source, 0))
        try:
            writer.write(begun)
            while not reader.at_eof():
                writer.write(b"a")
                await writer.drain()
                try:
                    async with asyncio.timeout(1):
                        if head := await reader.read(1000):
                            self._note("slow", head)
                except TimeoutError:
                    continue
        finally:
            writer.close()

    async def greedy(self, source: str, chance: random.Random) -> None:
        """Asks for as much as it can."""
        forged = b"Authorization: Bearer da_forged\r\n"
        raw = chance.choice(
            [
                _post(b"/api/v1/callbacks/nope", BOMB),
                _post(b"/api/v1/callbacks/nope", SMALL_BOMB),
                _post(b"/api/v1/runs", BOMB, forged),
                _post(b"/api/v1/runs", SMALL_BOMB, forged),
                b"GET /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2_000_000 + b"\r\n\r\n",
                b"GET /ws/nope HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nConnection: "
                b"Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            ]
        )
        # A probe's 503 may be the truth: nobody works here.
        await self._ask("probing" if b"/readyz" in raw[:20] else "greedy", source, raw)

    async def guessing(self, source: str, chance: random.Random) -> None:
        """Gets the form, and tries a password under some name."""
        page = await self._ask(
            "guessing", source, b"GET /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        token = page.split(b'name="csrfmiddlewaretoken" value="', 1)[1].split(b'"', 1)[0]
        cookie = page.split(b"csrf_", 1)[1].split(b";", 1)[0]
        name = chance.choice(["operator", "finance", "admin", f"name {chance.random()}"])
        body = b"csrfmiddlewaretoken=%s&username=%s&password=wrong" % (token, quote(name).encode())
        more = b"Cookie: durableagents_csrf_%s\r\nContent-Type: application/x-www-form-urlencoded\r\n" % cookie
        await self._ask("guessing", source, _post(b"/login", body, more))

    async def _ask(self, kind: str, source: str, raw: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(source, 0))
        try:
            writer.write(raw)
            answer = await reader.read(65536)
            if not answer.startswith(b"HTTP/1.1 101"):
                answer += await reader.read(65536)
            self._note(kind, answer)
            return answer
        finally:
            writer.close()

    def _note(self, kind: str, answer: bytes) -> None:
        status = answer[9:12].decode("ascii", "replace")
        is_honest = b"Retry-After" in answer or b"retry-after" in answer
        self.told[f"{kind} {status}{' busy' if status == '503' and is_honest else ''}"] += 1


def _post(path: bytes, body: bytes, more: bytes = b"") -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n" % (path, len(body))
    return head + more + b"\r\n" + body


def main() -> None:
    port, slow, greedy, guessing = (int(each) for each in sys.argv[1:5])
    crowd = Crowd(port, float(sys.argv[5]))
    asyncio.run(crowd.gather(slow, greedy, guessing))
    sys.stdout.write(json.dumps(crowd.told))


if __name__ == "__main__":
    main()
