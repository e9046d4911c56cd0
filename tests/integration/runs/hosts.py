"""A host in a thread of this process, for tests that need its loop and not its process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection

from runs.fleet import members
from runs.journal.claims import Worker
from runs.workers.housekeeping import Housekeeping
from runs.workers.run_loop import Host
from tests.integration.runs.stage import Stage

T = TypeVar("T")


class TidyHouse(Housekeeping):
    """Housekeeping that closes its connections, because here its thread ends before the process."""

    async def in_thread(self, act: Callable[[], T]) -> T:
        def tidily() -> T:
            try:
                return act()
            finally:
                connection.close()
                members.hang_up()

        return await super().in_thread(tidily)


class TidyHost(Host):
    """A host with such housekeeping. `has_looked` is set after its last claim, which may still get a run."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._house = TidyHouse(self.worker.id)
        self.has_looked = threading.Event()

    async def _finish(self) -> None:
        self.has_looked.set()
        await super()._finish()


@contextmanager
def serving(incarnation: UUID, *, slots: int = 10, kind: type[TidyHost] = TidyHost) -> Iterator[TidyHost]:
    host = kind(slots=slots, incarnation=incarnation)
    thread = threading.Thread(target=lambda: asyncio.run(host.serve()), name="host")
    thread.start()
    try:
        yield host
    finally:
        if host._drain_at is None:
            host.drain(60)
        thread.join(60)
        assert not thread.is_alive()


def working(stage: Stage, worker: Worker | None = None, **more: Any) -> Any:
    return serving((worker or stage.worker).id, **more)
