"""A host in a thread of this process, for stories that need its loop and not its process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from runs.fleet import members
from runs.journal.claims import Worker
from runs.workers.run_loop import Host
from tests.integration.runs.stage import Stage


class TidyHost(Host):
    """A host whose housekeeping leaves no connection behind: here its thread ends long before the process. It says when
    it looks for nothing more: a claim that is under way when a drain is asked for may yet get what becomes ready
    meanwhile, also what was just handed over, and hands it over in turn."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.has_looked = threading.Event()

    async def _finish(self) -> None:
        self.has_looked.set()
        await super()._finish()

    def _keep_house(self) -> float:
        try:
            return super()._keep_house()
        finally:
            connection.close()
            members.hang_up()


@contextmanager
def working(
    stage: Stage, worker: Worker | None = None, *, slots: int = 10, kind: type[TidyHost] = TidyHost
) -> Iterator[TidyHost]:
    """A host in a thread of its own until it has drained."""
    host = kind(slots=slots, incarnation=(worker or stage.worker).id)
    thread = threading.Thread(target=lambda: asyncio.run(host.serve()))
    thread.start()
    try:
        yield host
    finally:
        if host._drain_at is None:
            host.drain(60)
        thread.join(60)
        assert not thread.is_alive()
