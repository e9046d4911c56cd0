"""Whom or what a call is about, in its arguments' own words. Pure."""

from __future__ import annotations

from typing import Any

_NAMES = (
    "legal_name",
    "vendor_name",
    "company",
    "customer",
    "title",
    "subject",
    "name",
    "vendor",
    "topic",
    "vendor_id",
    "recipient",
    "to",
    "email",
)


def subject(document: Any) -> str:
    """The first field that reads like a party's or a matter's name, as it stands there; empty if none does."""
    if not isinstance(document, dict):
        return ""
    for name in _NAMES:
        value = document.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""
