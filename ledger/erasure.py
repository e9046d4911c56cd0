"""Runs whose content was erased: who did it, when and why, from the last event of the journal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from ledger import events as e
from ledger.errors import DurableAgentsError
from ledger.models import Event, Head


@dataclass(frozen=True, slots=True)
class Erasure:
    """The erasure of a run's content."""

    run_id: UUID
    at: datetime
    by: str
    reason: str

    def __str__(self) -> str:
        return f"Content erased on {self.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC by {self.by}: {self.reason}"


class Erased(DurableAgentsError, ValueError):
    """The run's content was erased.

    A ValueError too, as all that `ledger.codec.unpack` raises."""

    status, code, title = 410, "erased", "Erased"

    def __init__(self, run_id: UUID, erasure: Erasure | None = None) -> None:
        text = f"{erasure}." if erasure else "Its content was erased."
        # Explicitly, since the error of a missing key is one of these too.
        DurableAgentsError.__init__(self, f"Run {run_id} has no content any more. {text}", run_id=str(run_id))


# Return those of these runs that were erased, from a register of its own; set by apps that erase.
_registers: list[Callable[[Collection[UUID]], Mapping[UUID, Erasure]]] = []


def register(entries: Callable[[Collection[UUID]], Mapping[UUID, Erasure]]) -> None:
    """Add a function that returns those of these runs that were erased, also where a run's journal is in an archive.
    Idempotent."""
    if entries not in _registers:
        _registers.append(entries)


def on_record(run_ids: Collection[UUID]) -> dict[UUID, Erasure]:
    """Return the erasures of those of these runs that a register names."""
    return {run_id: found for entries in _registers for run_id, found in entries(run_ids).items()}


def erasure_of(run_id: UUID) -> Erasure | None:
    """Return the erasure of a run's content, by its last event; None if that is another one or unreadable. Of a run
    whose journal is elsewhere, return the register's entry."""
    if not Head.objects.filter(pk=run_id).exists():
        return on_record([run_id]).get(run_id)
    row = Event.objects.filter(run_id=run_id).order_by("-seq").only("run_id", "seq", "at", "kind", "clear").first()
    if row is None or row.kind != e.ContentErased.KIND:
        return None
    try:
        event = e.decode(bytes(row.clear))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if not isinstance(event, e.ContentErased):
        return None
    return Erasure(run_id, row.at, str(event.by), str(event.reason))


def erased(run_id: UUID) -> Erased:
    """Return the error to raise for a run whose content was erased."""
    return Erased(run_id, erasure_of(run_id))
