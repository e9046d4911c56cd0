"""A run's place in an order, and its encoding as a cursor."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.chain import microseconds
from ledger.web import cursors
from ledger.web.cursors import at_microseconds
from runs.engine.attributes import Attribute
from runs.queries.attributes.meaning import Rows

NEWEST = "-created_at"  # the lists' default order


@dataclass(frozen=True, slots=True)
class By:
    """Order by an attribute's values, of the runs that have one."""

    name: str
    attribute: Attribute
    is_falling: bool

    @property
    def rows(self) -> Rows:
        return Rows(self.name, self.attribute, "set", ())

    @property
    def column(self) -> str:
        return self.rows.column

    def takes(self, value: str) -> bool:
        try:
            return bool(self.attribute.texts(self.attribute.shown([value])))
        except (ValueError, ArithmeticError):
            return False


@dataclass(frozen=True, slots=True)
class Spot:
    """A run's place in an order: its value as text, if sorted by one; then its time and id."""

    at: datetime
    id: UUID
    value: str | None = None


def closed(spot: Spot, by: By | None) -> str:
    """Encode a place as a cursor."""
    if by is None:
        return cursors.closed(spot.at, spot.id)
    said = [by.name, by.is_falling, spot.value, microseconds(spot.at), spot.id.hex]
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode()


def opened(cursor: str, by: By | None) -> Spot | None:
    """Decode a cursor; None if it is invalid or of another order."""
    if by is None:
        place = cursors.opened(cursor)
        return None if place is None else Spot(*place)
    try:
        said = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        name, is_falling, value, count, digits = said
        at = at_microseconds(count) if type(count) is int else None
        if (name, is_falling) != (by.name, by.is_falling) or at is None or not isinstance(value, str):
            return None
        return Spot(at, UUID(hex=digits), value) if by.takes(value) else None
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        return None
