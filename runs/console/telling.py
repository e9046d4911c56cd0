"""What a run's page shows of what its nodes say for people: how far it has come, what is left, the newest lines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from ledger.models import Head
from runs.models import LogLine
from runs.queries.progress import Progress, last_lines, progress_of, told_of

SHOWN = 30


@dataclass
class TellingBlock:
    """One run's, as of a head from `families.heads`."""

    run_id: UUID
    head: Head

    @property
    def progress(self) -> Progress | None:
        return progress_of(self.head)

    @property
    def kept(self) -> int:
        """How many lines there are."""
        return int(told_of(self.head).get("lines", 0))

    @property
    def lost(self) -> int:
        """How many were said and aren't here."""
        return int(told_of(self.head).get("lost", 0))

    @cached_property
    def lines(self) -> list[LogLine]:
        """The newest, newest first."""
        return last_lines(self.run_id, SHOWN) if self.kept else []
