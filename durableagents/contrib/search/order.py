"""Order of runs by an attribute, their positions in it, and positions as cursors."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from durableagents.contrib.search.conditions import Rows
from ledger.chain import microseconds
from ledger.web import cursors
from ledger.web.cursors import at_microseconds
from runs.engine.attributes import Attribute


@dataclass(frozen=True, slots=True)
class AttributeOrder:
    """Order by an attribute's values, of the runs that have one."""

    name: str
    attribute: Attribute
    is_descending: bool

    @property
    def rows(self) -> Rows:
        return Rows(self.name, self.attribute, "set", ())

    @property
    def column(self) -> str:
        return self.rows.column

    def takes(self, value: str) -> bool:
        """Return whether the text is a value of this attribute."""
        try:
            return bool(self.attribute.texts(self.attribute.shown([value])))
        except (ValueError, ArithmeticError):
            return False


@dataclass(frozen=True, slots=True)
class Position:
    """A run's position in an order: its value as text, if sorted by one; then its time and id."""

    at: datetime
    id: UUID
    value: str | None = None


def encode(position: Position, by: AttributeOrder | None) -> str:
    """Encode a position as a cursor."""
    if by is None:
        return cursors.closed(position.at, position.id)
    parts = [by.name, by.is_descending, position.value, microseconds(position.at), position.id.hex]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


def decode(cursor: str, by: AttributeOrder | None) -> Position | None:
    """Decode a cursor; None if it is invalid or of another order."""
    if by is None:
        place = cursors.opened(cursor)
        return None if place is None else Position(*place)
    try:
        parts = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        name, is_descending, value, count, digits = parts
        at = at_microseconds(count) if type(count) is int else None
        if (name, is_descending) != (by.name, by.is_descending) or at is None or not isinstance(value, str):
            return None
        return Position(at, UUID(hex=digits), value) if by.takes(value) else None
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        return None
