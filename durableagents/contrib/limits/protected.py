"""Registers limits as protected rows: see ledger/protected.py."""

from __future__ import annotations

from durableagents.contrib.limits.models import Limit
from ledger.protected import protect

# Most rows only count calls. The codes protect the columns that people set.
_SET_BY_PEOPLE = {"key", "given", "given_by", "given_at"}
LIMIT = protect(
    Limit,
    "limit",
    named_by="key",
    free=frozenset(each.name for each in Limit._meta.concrete_fields) - _SET_BY_PEOPLE,
    counts="{row}.given IS NOT NULL",
)
