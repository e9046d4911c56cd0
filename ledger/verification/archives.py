"""Runs whose rows are in an archive outside the database. The app that archives tells which; without one, none is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from ledger.verification.runs import Verification


class ArchiveDamaged(Exception):
    """An archive is missing, can't be read, or is not as it was recorded. The message names it."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """A run's last event as the register of archives has it. `hashes` reads all events' hashes by number from the
    archive, None if it was deleted on the record, as `is_deleted` says, and raises ArchiveDamaged; `verify` checks what
    the archive holds."""

    seq: int
    chain: bytes
    hashes: Callable[[], Mapping[int, bytes] | None]
    verify: Callable[[], Verification]
    is_deleted: Callable[[], bool]


_finders: list[Callable[[Collection[UUID]], Mapping[UUID, ArchivedRun]]] = []


def register(finder: Callable[[Collection[UUID]], Mapping[UUID, ArchivedRun]]) -> None:
    """Add a function that returns those of some runs that are archived. Idempotent."""
    if finder not in _finders:
        _finders.append(finder)


def archived(run_ids: Collection[UUID]) -> dict[UUID, ArchivedRun]:
    """Return those of these runs that are archived."""
    return {run_id: found for finder in _finders for run_id, found in finder(run_ids).items()}
