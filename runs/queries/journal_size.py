"""How large a run's journal is, and whether that is more than a run should go on with."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.models import Head
from runs.engine.succession import LARGE_BYTES, LARGE_JOURNAL
from runs.models import ENDED, Run


@dataclass(frozen=True, slots=True)
class Size:
    """A journal's events and their bytes as they are stored (None: nobody counted them). `is_large`: of a run that has
    not ended, more than it should go on with."""

    events: int
    bytes: int | None
    is_large: bool


def size_of(run: Run, head: Head) -> Size:
    """The size of a run's journal."""
    stored = head.bytes if isinstance(head.bytes, int) else None
    is_much = head.seq >= LARGE_JOURNAL or (stored or 0) >= LARGE_BYTES
    return Size(head.seq, stored, is_much and run.state not in ENDED)
