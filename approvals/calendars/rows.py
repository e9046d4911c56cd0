"""Rows that came along as JSON, in a statement that asked for more."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from django.db import models

Row = TypeVar("Row", bound=models.Model)


def row_of(model: type[Row], columns: dict[str, Any]) -> Row:
    """A row as JSON has it."""
    values = {}
    for each in model._meta.concrete_fields:
        value = columns[each.attname]
        if isinstance(each, models.DateTimeField) and value is not None:
            value = datetime.fromisoformat(value)
        elif isinstance(each, models.BinaryField) and value is not None:
            value = bytes.fromhex(value.removeprefix("\\x"))
        elif isinstance(each, models.DecimalField) and value is not None:
            value = Decimal(value)
        values[each.attname] = value
    return model(**values)
