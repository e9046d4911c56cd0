"""A run's reported progress, log lines and journal size, and its place in the queue of its key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from pydantic import Field

from ledger.api.present import masked
from ledger.contents import readable_text
from ledger.models import Head
from ledger.web.shapes import Shape
from runs.engine.continuation import LARGE_BYTES, LARGE_JOURNAL
from runs.models import ENDED, NEVER, LogLine, Run, State


class JournalRow(Shape):
    """Size of a run's journal."""

    events: int = Field(description="Number of events.")
    bytes: int | None = Field(description="Stored size; null if the run started before sizes were recorded.")
    is_large: bool = Field(
        description="True if the journal is large and the run has not ended: it should be renewed soon."
    )


def size_of(run: Run, head: Head) -> JournalRow:
    stored = head.bytes if isinstance(head.bytes, int) else None
    is_much = head.seq >= LARGE_JOURNAL or (stored or 0) >= LARGE_BYTES
    return JournalRow(events=head.seq, bytes=stored, is_large=is_much and run.state not in ENDED)


def is_behind(run: Run) -> bool:
    return run.is_queued and run.state not in ENDED


def active_runs_of_keys(runs: Iterable[Run]) -> dict[UUID, UUID]:
    """Return, for each queued run, the active run of its key, in at most one query.
    A key has no active run between the end of one run and the start of the next."""
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


MAX_SHOWN = 30  # lines on a run's page


class ProgressRow(Shape):
    """Progress reported by the run."""

    done: float = Field(description="Amount done.")
    total: float | None = Field(description="Total; null: unknown.")
    note: str = Field(description="Description by the agent; empty if there is none.")
    at: datetime = Field(description="Time of the report.")
    left_seconds: float | None = Field(description="Estimated remaining time at the latest pace; null if unknown.")

    @property
    def percent(self) -> int | None:
        return None if self.total is None else int(100 * self.done / self.total)


class LogCounts(Shape):
    """Number of log lines by a run's nodes."""

    kept: int = Field(description="Number of lines that are kept.")
    lost: int = Field(
        description="Lines no longer kept because newer ones replaced them, or lost before they were stored."
    )


def progress_of(head: Head | None) -> ProgressRow | None:
    """Return the last reported progress, from a head of `families.heads`; None if there is none."""
    stored = stored_progress(head)
    if stored.get("done") is None or stored.get("at") is None:
        return None
    done, total, at = float(stored["done"]), stored.get("total"), datetime.fromisoformat(stored["at"])
    note, left = str(masked(readable_text(stored.get("note")))), _time_left(stored, at, done, total)
    return ProgressRow.of(None, done=done, total=total, note=note, at=at, left_seconds=left)


def log_counts(head: Head | None) -> LogCounts:
    stored = stored_progress(head)
    return LogCounts.of(None, kept=stored.get("lines", 0), lost=stored.get("lost", 0))


def _time_left(stored: Mapping[str, Any], at: datetime, done: float, of: float | None) -> float | None:
    if of is None or stored.get("since_at") is None or stored.get("since_done") is None:
        return None
    seconds = (at - datetime.fromisoformat(stored["since_at"])).total_seconds()
    came = done - float(stored["since_done"])
    return (of - done) * seconds / came if came > 0 and seconds > 0 else None


def stored_progress(head: Head | None) -> dict[str, Any]:
    stored = getattr(head, "told", None)
    return stored if isinstance(stored, dict) else {}


def last_lines(run_id: UUID, most: int, *, before: int | None = None, level: str = "") -> list[LogLine]:
    """Return a run's newest log lines, newest first, optionally of one level."""
    rows = LogLine.objects.filter(run_id=run_id, **({"level": level} if level else {}))
    return list((rows if before is None else rows.filter(id__lt=before)).order_by("-id")[:most])


def masked_text(line: LogLine) -> str:
    """Return a line's text with secrets masked."""
    return str(masked(line.text))


@dataclass
class ProgressPanel:
    """A run's progress and log on its page, from a head of `families.heads`."""

    run_id: UUID
    head: Head

    @property
    def progress(self) -> ProgressRow | None:
        return progress_of(self.head)

    @property
    def counts(self) -> LogCounts:
        return log_counts(self.head)

    @cached_property
    def lines(self) -> list[LogLine]:
        return last_lines(self.run_id, MAX_SHOWN) if self.counts.kept else []
