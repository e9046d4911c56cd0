"""What several people do at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
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
