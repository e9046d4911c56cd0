"""`fields=`: answers reduced to the fields that the caller names."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import ParseError

from ledger.web.api_base import Query
from ledger.web.shapes import Shape


def fields_in(query: Query, shape: type[Shape]) -> frozenset[str] | None:
    """Return the named fields; None for all. Raises ParseError for an unknown one."""
    text = query.text("fields")
    if text is None:
        return None
    names = frozenset(text.split(","))
    if unknown := sorted(names - shape.model_fields.keys()):
        known = ", ".join(sorted(shape.model_fields))
        raise ParseError(f"Query parameter 'fields' names {unknown[0][:60]!r}, which is no field here. Known: {known}.")
    return names


def only(row: Shape, names: frozenset[str] | None) -> Any:
    """Return a row with these fields only."""
    return row if names is None else {name: value for name, value in row.shown().items() if name in names}
