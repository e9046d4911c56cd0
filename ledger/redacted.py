"""Fields of tools' arguments and results that pages and exports leave out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ledger.events import ApprovalRequested

MASK = "…"
Pattern = tuple[str, ...]

# By tool. Tools of the same name in several agents share their fields.
_declared: dict[str, frozenset[Pattern]] = {}


def pattern_of(path: str) -> Pattern:
    """Return the pattern of a path's end, such as `customer.name`, with `*` for any name. Raises ValueError."""
    if not isinstance(path, str) or not path or any(not part for part in path.split(".")):
        raise ValueError(f"{path!r} is no path of fields, such as iban or customer.name")
    return tuple(path.lower().split("."))


def matches(path: Pattern, patterns: Iterable[Pattern]) -> bool:
    """Return whether the path, in small letters, ends with one of the patterns."""
    return any(
        len(path) >= len(pattern)
        and all(want in ("*", have) for want, have in zip(reversed(pattern), reversed(path), strict=False))
        for pattern in patterns
    )


def declare(tool: str, paths: Collection[str]) -> None:
    """Add fields of a tool. Raises ValueError."""
    _declared[tool] = _declared.get(tool, frozenset()) | {pattern_of(path) for path in paths}


def without_redacted(kind: str, clear: Mapping[str, Any], payload: Any) -> Any:
    """Return the payload of a tool's event with dots in place of the fields that the tool declared. What an approval
    binds stays whole."""
    patterns = _declared.get(str(clear.get("tool"))) if kind != ApprovalRequested.KIND else None
    return _masked(payload, patterns, ()) if patterns else payload


def _masked(value: Any, patterns: Collection[Pattern], path: Pattern) -> Any:
    if value is not None and matches(path, patterns):
        return MASK
    if isinstance(value, dict):
        return {name: _masked(each, patterns, (*path, str(name).lower())) for name, each in value.items()}
    return [_masked(each, patterns, path) for each in value] if isinstance(value, list) else value
