"""Access to runs whose rows are in an archive outside the database. Apps that archive runs register themselves."""

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
    """An archive is missing, can't be read, or differs from its record. The message names it."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """An archived run's last event, and functions to access its archive.

    `hashes` returns the hashes of all events by number, or None if the archive's deletion is recorded (`is_deleted`);
    raises ArchiveDamaged. `verify` checks the archive's content. `restore` brings its rows back, for a reason.
    `lay_out` inserts the rows temporarily, so that the caller can read them; the caller must roll its transaction back.
    `restore` and `lay_out` raise DurableAgentsError.
    """

    seq: int
    chain: bytes
    hashes: Callable[[], Mapping[int, bytes] | None]
    verify: Callable[[], Verification]
    is_deleted: Callable[[], bool]
    restore: Callable[[Actor, str], object]
    lay_out: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """A search for runs by their start parameters; an empty field matches any.

    `before`: only runs created before this time, or at this time with a lower id.
    """

    business_key: str = ""
    tag: str = ""
    agent: str = ""
    before: tuple[datetime, UUID] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run in a list of runs from the database and archives. `archived_at` is None for one in the database."""

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
    """Register two functions of an app. Idempotent.

    `finder` returns which of the given runs are archived. `lister` returns the archived runs that match a search,
    newest first, up to the given number.
    """
    if finder not in _finders:
        _finders.append(finder)
        _listers.append(lister)


def archived(run_ids: Collection[UUID]) -> dict[UUID, ArchivedRun]:
    """Return the given runs that are archived, by id."""
    return {run_id: found for finder in _finders for run_id, found in finder(run_ids).items()}


def listed(sought: Sought, limit: int) -> list[ListedRun]:
    """Return matching archived runs, newest first, regardless of the viewer."""
    return [row for lister in _listers for row in lister(sought, limit)]
