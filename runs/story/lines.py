"""A journal event as the console reads it: the row's columns, its clear facts, and its payload opened only when asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from ledger.events import Event, encode_clear, seal, unseal
from ledger.present import MASK, masked


class Row(Protocol):
    """What is read of a stored event; `ledger.models.Event` fits."""

    seq: int
    at: datetime
    kind: str
    slot: str | None
    attempt: int
    epoch: int
    clear: Any
    sealed: Any
    hash: Any
    prev_hash: Any


@dataclass
class Line:
    """One event. `clear` holds the fields of its kind, for example `clear["tool"]`."""

    seq: int
    at: datetime
    kind: str
    slot: str | None
    attempt: int
    epoch: int
    clear: dict[str, Any]
    sealed: bytes | None = field(repr=False, default=None)
    hash: bytes = field(repr=False, default=b"")
    prev_hash: bytes = field(repr=False, default=b"")

    @cached_property
    def payload(self) -> Any:
        """The payload, or words about why it can't be read: a damaged row must not take the page down that shows it."""
        try:
            return unseal(self.sealed)
        except (ValueError, RecursionError) as error:
            return {"unreadable": str(error)}

    @cached_property
    def shown(self) -> Any:
        """The payload as it may be shown: whoever holds a callback token could answer in upstream's name, so it stays out."""
        if self.kind == "ApprovalRequested":
            return self.payload  # what a decision binds is shown as it is; a plan holds no token
        if self.kind == "ToolInvoked" and isinstance(self.payload, dict) and self.payload.get("callback_token"):
            return masked({**self.payload, "callback_token": MASK})
        return masked(self.payload)

    @property
    def facts(self) -> dict[str, Any]:
        """The clear fields that the row has no column for."""
        return {key: value for key, value in self.clear.items() if key not in ("kind", "slot", "attempt")}

    @property
    def hash_hex(self) -> str:
        return self.hash.hex()

    @property
    def prev_hex(self) -> str:
        return self.prev_hash.hex()

    def get(self, key: str, default: Any = None) -> Any:
        """A field of the payload if it is an object that has it."""
        return self.payload.get(key, default) if isinstance(self.payload, dict) else default


def read(rows: Iterable[Row]) -> Iterator[Line]:
    """Stored events as lines, in the order given."""
    for row in rows:
        yield Line(
            seq=row.seq,
            at=row.at,
            kind=row.kind,
            slot=row.slot,
            attempt=row.attempt,
            epoch=row.epoch,
            clear=json.loads(bytes(row.clear)),
            sealed=None if row.sealed is None else bytes(row.sealed),
            hash=bytes(row.hash),
            prev_hash=bytes(row.prev_hash),
        )


def line_of(event: Event, *, seq: int, at: datetime, epoch: int = 0) -> Line:
    """A line of an event that isn't stored: what a preview or a test reads."""
    return Line(
        seq=seq,
        at=at,
        kind=event.KIND,
        slot=event.slot,
        attempt=event.attempt,
        epoch=epoch,
        clear=json.loads(encode_clear(event)),
        sealed=seal(event.payload),
    )
