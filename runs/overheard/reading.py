"""Reading live model output: record that a run is being viewed, and return the text that its models are writing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.api.present import masked
from ledger.contents import readable_text
from ledger.web.pressure import optionally

LISTENED_SECONDS = 30  # after the last request by a page
STALE_SECONDS = 30  # a text that hasn't grown for this long belongs to a worker that is gone
# Deletes rows that are no longer needed too, except those that others have locked, so that two of these can't deadlock.
_LISTEN = """
WITH gone AS (DELETE FROM runs_overheard WHERE id IN (
         SELECT id FROM runs_overheard WHERE at < clock_timestamp() - make_interval(secs => %(stale)s)
         LIMIT 500 FOR UPDATE SKIP LOCKED)),
     left_off AS (DELETE FROM runs_listener WHERE run_id IN (
         SELECT run_id FROM runs_listener WHERE until < clock_timestamp() AND run_id <> ALL(%(runs)s)
         LIMIT 500 FOR UPDATE SKIP LOCKED))
INSERT INTO runs_listener (run_id, until)
SELECT r.id, clock_timestamp() + make_interval(secs => %(listened)s) FROM runs_run r
WHERE r.id = ANY(%(runs)s) AND r.ended_at IS NULL ORDER BY r.id
ON CONFLICT (run_id) DO UPDATE SET until = excluded.until
WHERE runs_listener.until < clock_timestamp() + make_interval(secs => %(listened)s / 2)
"""
# Recorded output is never shown twice, and output from a worker that lost the run is dropped.
_READ = """
SELECT o.run_id, o.slot, o.text, o.characters, o.at FROM runs_overheard o
JOIN ledger_head h ON h.run_id = o.run_id AND h.epoch = o.epoch AND h.lease IS NOT NULL
WHERE o.run_id = ANY(%(runs)s) AND o.at > clock_timestamp() - make_interval(secs => %(stale)s)
  AND NOT EXISTS (SELECT 1 FROM ledger_event e WHERE e.run_id = o.run_id AND e.slot = o.slot
                  AND e.attempt = o.attempt AND e.fact = 'result')
ORDER BY o.run_id, o.slot
"""


@dataclass(frozen=True, slots=True)
class LiveOutput:
    """The answer so far to the request at a slot: the end of its `characters`."""

    slot: str
    text: str
    characters: int
    at: datetime


def listen(runs: Iterable[UUID]) -> None:
    """Make workers store the output of these runs' models for the next half minute.
    While the database accepts no writes, this has no effect, but stored texts can still be read."""
    given: dict[str, Any] = {"runs": list(runs), "listened": LISTENED_SECONDS, "stale": STALE_SECONDS}
    with connection.cursor() as cursor:
        optionally(lambda: cursor.execute(_LISTEN, given))


def live_output_of(runs: Iterable[UUID]) -> dict[UUID, list[LiveOutput]]:
    """Return the live output of these runs. Runs without live output are left out."""
    found: dict[UUID, list[LiveOutput]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_READ, {"runs": list(runs), "stale": STALE_SECONDS})
        for run_id, slot, text, characters, at in cursor.fetchall():
            found.setdefault(run_id, []).append(LiveOutput(slot, masked(readable_text(text)), characters, at))
    return found
