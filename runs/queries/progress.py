"""A run's reported progress, log lines, journal size, and place in its key's queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from ledger.api.present import masked
from ledger.contents import readable_text
from ledger.models import Head
from runs.engine.continuation import LARGE_BYTES, LARGE_JOURNAL
from runs.models import ENDED, NEVER, LogLine, Run, State


@dataclass(frozen=True, slots=True)
class Size:
    """A journal's events and stored bytes (None: not counted). `is_large`: an active run should be renewed."""

    events: int
    bytes: int | None
    is_large: bool


def size_of(run: Run, head: Head) -> Size:
    stored = head.bytes if isinstance(head.bytes, int) else None
    is_much = head.seq >= LARGE_JOURNAL or (stored or 0) >= LARGE_BYTES
    return Size(head.seq, stored, is_much and run.state not in ENDED)


def is_behind(run: Run) -> bool:
    return run.is_queued and run.state not in ENDED


def ahead(runs: Iterable[Run]) -> dict[UUID, UUID]:
    """Return the key's active run for queued runs, in at most one query; none between an end and a turn."""
    queued = [run for run in runs if is_behind(run)]
    if not queued:
        return {}
    rows = (
        Run.objects.filter(
            agent__in={run.agent for run in queued},
            business_key__in={run.business_key for run in queued},
            ended_at__isnull=True,
            is_queued=False,
        )
        .exclude(business_key="")
        .values_list("agent", "business_key", "id")
    )
    living = {(agent, key): run_id for agent, key, run_id in rows}
    found = {run.id: living.get((run.agent, run.business_key)) for run in queued}
    return {run_id: one for run_id, one in found.items() if one is not None}


def is_early(run: Run) -> bool:
    return run.state == State.PENDING and run.ready_at not in (None, NEVER) and run.ready_at > datetime.now(UTC)


SHOWN = 30  # lines on a run's page


@dataclass(frozen=True, slots=True)
class Progress:
    """Reported progress: `done` of `of` (None: unknown), at a time.
    `left_seconds` counts from there, at the pace since its claim, without waiting times; None if unknown."""

    done: float
    of: float | None
    note: str
    at: datetime
    left_seconds: float | None

    @property
    def percent(self) -> int | None:
        return None if self.of is None else int(100 * self.done / self.of)


def progress_of(head: Head | None) -> Progress | None:
    """Return the last reported progress, from a head of `families.heads`; None if there is none."""
    told = told_of(head)
    if told.get("done") is None or told.get("at") is None:
        return None
    done, of = float(told["done"]), told.get("total")
    at = datetime.fromisoformat(told["at"])
    return Progress(done, of, str(masked(readable_text(told.get("note")))), at, _left(told, at, done, of))


def _left(told: Mapping[str, Any], at: datetime, done: float, of: float | None) -> float | None:
    if of is None or told.get("since_at") is None or told.get("since_done") is None:
        return None
    seconds = (at - datetime.fromisoformat(told["since_at"])).total_seconds()
    came = done - float(told["since_done"])
    return (of - done) * seconds / came if came > 0 and seconds > 0 else None


def told_of(head: Head | None) -> dict[str, Any]:
    told = getattr(head, "told", None)
    return told if isinstance(told, dict) else {}


def last_lines(run_id: UUID, most: int, *, before: int | None = None, level: str = "") -> list[LogLine]:
    """Return a run's newest log lines, newest first, optionally of one level."""
    rows = LogLine.objects.filter(run_id=run_id, **({"level": level} if level else {}))
    return list((rows if before is None else rows.filter(id__lt=before)).order_by("-id")[:most])


def shown(line: LogLine) -> str:
    """Return a line's text, masked."""
    return str(masked(line.text))


@dataclass
class TellingBlock:
    """A run's progress and log on its page, from a head of `families.heads`."""

    run_id: UUID
    head: Head

    @property
    def progress(self) -> Progress | None:
        return progress_of(self.head)

    @property
    def kept(self) -> int:
        return int(told_of(self.head).get("lines", 0))

    @property
    def lost(self) -> int:
        return int(told_of(self.head).get("lost", 0))

    @cached_property
    def lines(self) -> list[LogLine]:
        return last_lines(self.run_id, SHOWN) if self.kept else []
