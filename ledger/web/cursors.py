"""Keyset pagination of long tables, and cursors for it."""

# A filter with several values (three states, two queues) becomes several *arms*: each is read in order from its own
# index, and the database merges them. `column IN (…)` with an ORDER BY would scan the order and discard rows.

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models.expressions import RawSQL

from ledger.chain import microseconds
from ledger.web.tally import Counted

Place = tuple[datetime, UUID]


class Condition(str):
    """An SQL condition used as an arm's key instead of a column. The arm's value is the list of its parameters."""

    __slots__ = ()

    @staticmethod
    def of(arm: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
        """Return an arm's conditions and their values."""
        texts = [str(each) if isinstance(each, Condition) else f"{each} = %s" for each in arm]
        values = [value for each, given in arm.items() for value in (given if isinstance(each, Condition) else [given])]
        return texts, values


@dataclass(frozen=True, slots=True)
class Order:
    """A table ordered by a timestamp and an id.

    `only` is a condition on every row, as in a partial index. The names are inserted into SQL unchanged, so they must
    never come from a caller.
    """

    table: str
    moment: str
    is_newest_first: bool = True
    only: str = ""

    def ids(
        self, arms: Sequence[Mapping[str, Any]], *, limit: int, beyond: Place | None = None, is_from: bool = False
    ) -> RawSQL:
        """Return SQL for up to `limit` unordered ids that match an arm, after `beyond` (inclusive with `is_from`)."""
        direction, sign = ("DESC", "<") if self.is_newest_first else ("ASC", ">")
        sign += "=" if is_from else ""
        order = f"ORDER BY {self.moment} {direction}, id {direction} LIMIT %s"
        parts, values = [], []
        for arm in arms:
            of_arm, given = Condition.of(arm)
            conditions = [*([self.only] if self.only else []), *of_arm]
            values += given
            if beyond is not None:
                conditions.append(f"({self.moment}, id) {sign} (%s, %s)")
                values += beyond
            where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
            parts.append(f"(SELECT id, {self.moment} FROM {self.table} {where} {order})")
            values.append(limit)
        return RawSQL(f"SELECT id FROM ({' UNION ALL '.join(parts)}) AS arms {order}", [*values, limit])

    def counted(self, arms: Sequence[Mapping[str, Any]], *, to: int) -> Counted:
        """Return a count of matching rows, up to one more than `to`.

        The rows are read in the list's order, so that the list's index is used.
        """
        direction = "DESC" if self.is_newest_first else "ASC"
        parts: list[tuple[str, list[Any]]] = []
        for arm in arms:
            of_arm, given = Condition.of(arm)
            conditions = [*([self.only] if self.only else []), *of_arm]
            where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
            order = f"ORDER BY {self.moment} {direction}, id {direction} LIMIT %s"
            parts.append((f"SELECT 1 FROM {self.table} {where} {order}", [*given, to + 1]))
        return Counted(to, parts)


def closed(at: datetime, id: UUID) -> str:
    return base64.urlsafe_b64encode(microseconds(at).to_bytes(8, "big") + id.bytes).decode()


def opened(cursor: str) -> Place | None:
    """Return a cursor's parts; None if invalid."""
    try:
        raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    at = at_microseconds(int.from_bytes(raw[:8], "big")) if len(raw) == 24 else None
    return None if at is None else (at, UUID(bytes=raw[8:]))


def at_microseconds(count: int) -> datetime | None:
    """Convert microseconds (see ledger.chain.microseconds) to a time; None if outside Python's range."""
    try:
        return datetime.fromtimestamp(count // 10**6, UTC).replace(microsecond=count % 10**6)
    except (OverflowError, ValueError, OSError):
        return None


# Maximum digits of a row number: as many as its column can hold.
ROW = 19


def numbered(*numbers: int) -> str:
    return ".".join(map(str, numbers))


def placed(at: datetime, number: int) -> str:
    return numbered(microseconds(at), number)


def placed_at(cursor: str) -> tuple[datetime, int] | None:
    """Return a cursor's parts; None if invalid."""
    numbers = numbers_of(cursor, 18, ROW)
    at = at_microseconds(numbers[0]) if numbers else None
    return (at, numbers[1]) if numbers and at is not None else None


def numbers_of(cursor: str, *digits: int) -> tuple[int, ...] | None:
    """Return one number per item of `digits`, each with at most that many digits; None if invalid.

    A number of ROW digits may be negative: forged rows may have such numbers, and the list must continue after them.
    """
    pattern = r"\.".join(f"({'-?' if most == ROW else ''}[0-9]{{1,{most}}})" for most in digits)
    match = re.fullmatch(pattern, cursor, re.ASCII)
    numbers = tuple(map(int, match.groups())) if match else None
    return numbers if numbers and all(-(2**63) <= number < 2**63 for number in numbers) else None
