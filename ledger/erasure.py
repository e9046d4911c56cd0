"""Tell whether a run's content was erased, by whom, when and why, from the last event of its journal."""

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

    This is also a ValueError, like all errors of `ledger.codec.unpack`.
    """

    status, code, title = 410, "erased", "Erased"

    def __init__(self, run_id: UUID, erasure: Erasure | None = None) -> None:
        text = f"{erasure}." if erasure else "Its content was erased."
        # Called explicitly, because the class for a missing key inherits from this one as well.
        DurableAgentsError.__init__(self, f"Run {run_id} has no content any more. {text}", run_id=str(run_id))


# Functions that return which of the given runs were erased, from a register of their own; added by apps that erase
# content.
_registers: list[Callable[[Collection[UUID]], Mapping[UUID, Erasure]]] = []


def register(entries: Callable[[Collection[UUID]], Mapping[UUID, Erasure]]) -> None:
    """Add a function that returns which of the given runs were erased. Idempotent.

    The function covers runs whose journals are archived.
    """
    if entries not in _registers:
        _registers.append(entries)


def on_record(run_ids: Collection[UUID]) -> dict[UUID, Erasure]:
    """Return the erasures that the registers contain for these runs."""
    return {run_id: found for entries in _registers for run_id, found in entries(run_ids).items()}


def erasure_of(run_id: UUID) -> Erasure | None:
    """Return the erasure of a run's content; None if its last event is not a readable ContentErased.

    For a run whose journal is elsewhere, return the register's entry.
    """
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
