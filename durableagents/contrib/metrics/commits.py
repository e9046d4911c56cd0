"""Counts the journal writes of this process in memory, and adds them to the shared counters every few seconds.

A killed process loses the last seconds of these counts. All other metrics are counted in the database."""

from __future__ import annotations

from bisect import bisect_left

from django.db import transaction

from durableagents.contrib.metrics.catalogue import COMMITS, SUM
from durableagents.contrib.metrics.counting import Increments
from ledger.observers import WriteTimed
from runs.journal.database_errors import is_transient

# A write that raised one of these exceptions failed: no connection, a serialization failure, or a refused statement.
UNAVAILABLE, REFUSED = "unavailable", "refused"


class Commits:
    """Totals since the process began. `flush` adds the increase to the counters."""

    def __init__(self) -> None:
        self._buckets = [0] * (len(COMMITS) + 1)
        self._seconds = 0.0
        self._failures = {UNAVAILABLE: 0, REFUSED: 0}
        self._flushed: dict[tuple[str, str | int], float] = {}

    def note(self, write: WriteTimed) -> None:
        """Count a write. The event loop calls this after each write, so it does as little as possible."""
        if write.error is None:
            self._buckets[bisect_left(COMMITS, write.seconds)] += 1
            self._seconds += write.seconds
        else:
            self._failures[UNAVAILABLE if is_transient(write.error) else REFUSED] += 1

    def flush(self) -> None:
        """Add the increase since the last flush to the counters; after an error it is added the next time.

        Raises DatabaseError."""
        now: dict[tuple[str, str | int], float] = {
            **{("commit_seconds", n): float(count) for n, count in enumerate(list(self._buckets))},
            ("commit_seconds", SUM): self._seconds,
            **{("commit_failures", reason): float(count) for reason, count in self._failures.items()},
        }
        increments = Increments()
        has_news = False
        for (name, part), value in now.items():
            if (new := value - self._flushed.get((name, part), 0.0)) > 0:
                has_news = True
                if isinstance(part, int):
                    increments.add_part(name, part, new)
                else:
                    increments.add(name, part, by=new)
        if has_news:
            with transaction.atomic():
                increments.store()
            self._flushed = now


commits = Commits()
