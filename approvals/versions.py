"""Rows that are append-only versions with codes. Forged versions, whatever their number, hide no authentic one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ledger.models import Coded
from ledger.rows import row_of

Version = TypeVar("Version", bound=Coded)
LOOKED_AT = 5  # number of versions searched for an authentic one
HIGHEST = 2**31 - 1  # the highest version number


def newest_of(model: type[Version], values: Iterable[Any]) -> Version | None:
    """Return the newest authentic row. `values` are the values of the rows, newest first."""
    return next((row for row in (row_of(model, each) for each in values) if row.is_authentic), None)


def next_version(taken: Iterable[int], last: int) -> int | None:
    """Return the next version number, above all `taken` ones if possible; None if LOOKED_AT or more would be above
    it."""
    taken = set(taken)
    top = max(taken, default=0)
    if top < HIGHEST:
        return top + 1
    number = last + 1
    while number in taken:
        number += 1
    return number if number < HIGHEST and sum(each > number for each in taken) < LOOKED_AT else None
