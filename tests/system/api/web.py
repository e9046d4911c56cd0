"""A real web process and a client to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.conftest import CHECKOUT
from tests.waiting import eventually


class Web:
    def __init__(self, env: dict[str, str], *options: str, stderr: Any = None) -> None:
        self.port = int(env["PORT"])
        command = [sys.executable, "manage.py", "web", *options]
        self.process = subprocess.Popen(command, env=env, cwd=CHECKOUT, start_new_session=True, stderr=stderr)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def is_alive(self) -> bool:
        assert self.process.poll() is None, "the web process ended"
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Ask until it is true; a request without an answer counts as false."""

        def ask() -> bool:
            assert self.process.poll() is None, "the web process ended"
            try:
                return is_so()
            except httpx.TransportError:
                return False

        eventually(ask, what, 60)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


@contextmanager
def serving(
    env: dict[str, str], *options: str, kind: type[Web] = Web, stderr: Any = None, exit_code: int | None = None
) -> Iterator[Any]:
    web = kind(env, *options, stderr=stderr)
    try:
        eventually(web.is_alive, "the web process")
        yield web
        assert exit_code is None or web.stop() == exit_code
    finally:
        web.client.close()
        web.process.kill()
        web.process.wait()
