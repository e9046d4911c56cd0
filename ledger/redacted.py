"""Redact values for pages, exports and logs: fields of arguments and results, idempotency keys, callback tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ledger.events import ApprovalRequested

MASK = "…"
Pattern = tuple[str, ...]
# A callback token lets anyone answer the call. With an idempotency key and access to the upstream system, anyone could
# make the call's request there first.
_TOKEN = re.compile(r"(/api/v1/callbacks/)[^\s\"'?#/<>]+")
_KEPT = len("da-") + 8  # characters that stay visible
_KEY = re.compile(r"(?<![0-9A-Za-z])(da-[0-9a-f]{8})[0-9a-f]{32}(?![0-9A-Za-z])")

# Keyed by tool name; tools with the same name in several agents share their fields.
_declared: dict[str, frozenset[Pattern]] = {}


def masked_key(key: str | None) -> str | None:
    """Mask an idempotency key except its beginning, which is enough to find the call in the upstream system."""
    return key[:_KEPT] + MASK if key is not None and _KEY.fullmatch(key) else key


def masked_text(text: str) -> str:
    """Return a text with masked idempotency keys, and without the tokens of callback addresses."""
    if "/callbacks/" in text:
        text = _TOKEN.sub(rf"\g<1>{MASK}", text)
    return _KEY.sub(rf"\g<1>{MASK}", text) if "da-" in text else text


def pattern_of(path: str) -> Pattern:
    """Return the pattern for the end of a path, such as `customer.name`; `*` matches any name. Raises ValueError."""
    if not isinstance(path, str) or not path or any(not part for part in path.split(".")):
        raise ValueError(f"{path!r} is not a path of fields, such as iban or customer.name")
    return tuple(path.lower().split("."))


def matches(path: Pattern, patterns: Iterable[Pattern]) -> bool:
    """Return whether the path, in lower case, ends with one of the patterns."""
    return any(
        len(path) >= len(pattern)
        and all(want in ("*", have) for want, have in zip(reversed(pattern), reversed(path), strict=False))
        for pattern in patterns
    )


def declare(tool: str, paths: Collection[str]) -> None:
    """Add paths of fields to redact in the events of a tool. Raises ValueError."""
    _declared[tool] = _declared.get(tool, frozenset()) | {pattern_of(path) for path in paths}


def without_redacted(kind: str, clear: Mapping[str, Any], payload: Any) -> Any:
    """Return the payload of a tool's event with dots in place of the values of fields that the tool declared.

    Values that an approval is bound to are not redacted.
    """
    patterns = _declared.get(str(clear.get("tool"))) if kind != ApprovalRequested.KIND else None
    return _masked(payload, patterns, ()) if patterns else payload


def _masked(value: Any, patterns: Collection[Pattern], path: Pattern) -> Any:
    if value is not None and matches(path, patterns):
        return MASK
    if isinstance(value, dict):
        return {name: _masked(each, patterns, (*path, str(name).lower())) for name, each in value.items()}
    return [_masked(each, patterns, path) for each in value] if isinstance(value, list) else value
