"""Build model instances from rows that an SQL statement returns as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import Any, TypeVar
from uuid import UUID

from django.db import models

from ledger.clock import ReadableTime
from ledger.contents import ContentBytes, ContentField

Row = TypeVar("Row", bound=models.Model)
_TIMES = ReadableTime(0)
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNREADABLE = (ValueError, TypeError, KeyError, ArithmeticError, RecursionError, DecimalException)


def row_of(model: type[Row], values: Any, readable: str | None = None) -> Row:
    """Build a row from JSON (text or parsed). `readable` names the columns that can be read even if the rest can't."""
    is_exact = any(isinstance(each, models.DecimalField) for each in model._meta.concrete_fields)
    try:
        columns = json.loads(values, parse_float=Decimal if is_exact else None) if isinstance(values, str) else values
        return model(**{each.attname: _value(each, columns[each.attname]) for each in model._meta.concrete_fields})
    except _UNREADABLE:
        return _unreadable(model, {} if readable is None else json.loads(readable))


def moment_in(written: str) -> datetime:
    """Parse a time from JSON, clamped to Python's range."""
    return _TIMES.read(written)


def _value(field: models.Field[Any, Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(field, ContentField):
        return field.from_row(bytes.fromhex(value.removeprefix("\\x")) if isinstance(field, ContentBytes) else value)
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
