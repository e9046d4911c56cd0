"""What several people do at the same moment, and what happens to their connections meanwhile."""

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
    """Let every act loose at the same moment, each on a connection of its own. Being refused is part of a race."""
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
    """End the database's side of these connections, of which more may come in until then."""
    time.sleep(after_seconds)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(p) FROM unnest(%s::int[]) p", [backends])


@contextmanager
def cut_meanwhile(after_seconds: float) -> Iterator[None]:
    """Lose this thread's own connection while it does something, perhaps between the commit and its answer."""
    connection.ensure_connection()
    backend = connection.connection.info.backend_pid
    thread = threading.Thread(target=at_once, args=([partial(cut, [backend], after_seconds)],))
    thread.start()
    try:
        yield
    finally:
        thread.join()
