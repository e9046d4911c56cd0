"""Runs whose rows are in an archive outside the database. The app that archives tells which; without one, none is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from ledger.actors import Actor
    from ledger.verification.runs import Verification


class ArchiveDamaged(Exception):
    """An archive is missing, can't be read, or is not as it was recorded. The message names it."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """An archived run's last event, and access to its archive. `hashes` returns the hashes of all events by number, or
    None if the archive was deleted on the record (`is_deleted`); raises ArchiveDamaged. `verify` checks the archive's
    content. `restore` brings its rows back, for a reason. `lay_out` puts them into the caller's transaction to be read
    there; it must be rolled back. The last two raise DurableAgentsError."""

    seq: int
    chain: bytes
    hashes: Callable[[], Mapping[int, bytes] | None]
    verify: Callable[[], Verification]
    is_deleted: Callable[[], bool]
    restore: Callable[[Actor, str], object]
    lay_out: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """A search for runs by what they were started with; empty fields stand for any. `before`: only those that were
    created before this time, or at it with a lower id."""

    business_key: str = ""
    tag: str = ""
    agent: str = ""
    before: tuple[datetime, UUID] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run in a list over database and archives. `archived_at` is None for one in the database."""

    run_id: UUID
    agent: str
    version: str
    state: str
    business_key: str
    created_at: datetime
    archived_at: datetime | None = None
    deleted_at: datetime | None = None


_listers: list[Callable[[Sought, int], Iterable[ListedRun]]] = []
_finders: list[Callable[[Collection[UUID]], Mapping[UUID, ArchivedRun]]] = []


def register(
    finder: Callable[[Collection[UUID]], Mapping[UUID, ArchivedRun]],
    lister: Callable[[Sought, int], Iterable[ListedRun]],
) -> None:
    """Add a function that returns those of some runs that are archived, and one that returns at most so many archived
    runs that fit a search, newest first. Idempotent."""
    if finder not in _finders:
        _finders.append(finder)
        _listers.append(lister)


def archived(run_ids: Collection[UUID]) -> dict[UUID, ArchivedRun]:
    """Return those of these runs that are archived."""
    return {run_id: found for finder in _finders for run_id, found in finder(run_ids).items()}


def listed(sought: Sought, limit: int) -> list[ListedRun]:
    """Return archived runs that fit, newest first, for all viewers."""
    return [row for lister in _listers for row in lister(sought, limit)]
