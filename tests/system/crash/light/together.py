"""Acts of several people at the same moment, and faults of their connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from django.db import OperationalError, connection

from ledger.errors import DurableAgentsError


def at_once(acts: list[Callable[[], Any]]) -> None:
    """Run all acts at the same moment on separate connections; refusals are part of a race."""
    gate = threading.Barrier(len(acts))

    def perform(act: Callable[[], Any]) -> None:
        try:
            with suppress(OperationalError):
                connection.ensure_connection()
            gate.wait(60)
            with suppress(DurableAgentsError, OperationalError):
                act()
        finally:
            connection.close()

    threads = [threading.Thread(target=perform, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def cut(backends: list[int], after_seconds: float) -> None:
    """End the server side of these connections; more may be added until then."""
    time.sleep(after_seconds)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(p) FROM unnest(%s::int[]) p", [backends])


@contextmanager
def cut_meanwhile(after_seconds: float) -> Iterator[None]:
    """Cut this thread's own connection during the block, perhaps between commit and answer."""
    connection.ensure_connection()
    backend = connection.connection.info.backend_pid
    thread = threading.Thread(target=at_once, args=([partial(cut, [backend], after_seconds)],))
    thread.start()
    try:
        yield
    finally:
        thread.join()
