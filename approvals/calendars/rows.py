"""Rows that came along as JSON, in a statement that asked for more.

Each comes as a text of its own, `to_json(row)::text`: what nobody can read in one of them is then of this one alone. A
row that can't be read was written by none of our processes, and is given as one without a code: it is not genuine,
counts for nothing, and breaks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import Any, TypeVar
from uuid import UUID

from django.db import models

from ledger.clock import ReadableTime
from ledger.models import Coded

Row = TypeVar("Row", bound=models.Model)
Version = TypeVar("Version", bound=Coded)
# Of versions, the newest so many are looked at for one that is genuine: what somebody adds past us, whatever its
# number, takes away nothing of what an administrator has set.
LOOKED_AT = 5
_TIMES = ReadableTime(0)
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNREADABLE = (ValueError, TypeError, KeyError, ArithmeticError, RecursionError, DecimalException)


def row_of(model: type[Row], told: Any, readable: str | None = None) -> Row:
    """A row as JSON has it: `told` is the text of it, or what was read of that. `readable` is the text of those columns
    which the database itself keeps readable, for what has to be told, and found, of a row that is not."""
    is_exact = any(isinstance(each, models.DecimalField) for each in model._meta.concrete_fields)
    try:
        columns = json.loads(told, parse_float=Decimal if is_exact else None) if isinstance(told, str) else told
        return model(**{each.attname: _value(each, columns[each.attname]) for each in model._meta.concrete_fields})
    except _UNREADABLE:
        return _unreadable(model, {} if readable is None else json.loads(readable))


def newest_of(model: type[Version], told: Iterable[Any]) -> Version | None:
    """The first of these rows, the newest first, that one of our processes wrote."""
    return next((row for row in (row_of(model, each) for each in told) if row.is_genuine), None)


def moment_in(written: str) -> datetime:
    """A moment as JSON has it; the last there is, or the first, for one that Python's calendar hasn't."""
    return _TIMES.read(written)


def _value(field: models.Field[Any, Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(field, models.DateTimeField):
        return moment_in(value)
    if isinstance(field, models.BinaryField):
        return bytes.fromhex(value.removeprefix("\\x"))
    kind = field.target_field if isinstance(field, models.ForeignKey) else field
    if isinstance(kind, models.UUIDField):
        return UUID(value)
    return Decimal(value) if isinstance(field, models.DecimalField) else value


def _unreadable(model: type[Row], columns: dict[str, Any]) -> Row:
    known = {
        each.attname: _value(each, columns[each.attname])
        for each in model._meta.concrete_fields
        if each.attname in columns
    }
    times = {
        each.attname: _NEVER
        for each in model._meta.concrete_fields
        if isinstance(each, models.DateTimeField) and not each.null
    }
    return model(**(times | known))
