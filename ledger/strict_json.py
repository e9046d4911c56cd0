"""JSON as outsiders may send it: RFC 8259 in the narrower sense of I-JSON (RFC 7493).

Python's own reader also takes NaN, 1e999, repeated names, half surrogate pairs and any depth. Each of
these means something else to the next reader of the same bytes, so none gets in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_EXACT_INTEGER = 2**53 - 1


class MalformedJSON(ValueError):
    """The bytes are no acceptable JSON; the message says what is wrong, in words for the sender."""


def loads(body: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises MalformedJSON."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJSON(f"The body is not UTF-8 (byte {error.start}).") from None
    if text.startswith("\ufeff"):
        raise MalformedJSON("The body starts with a byte order mark; send it without one.")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except MalformedJSON:
        raise
    except json.JSONDecodeError as error:
        raise MalformedJSON(f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except RecursionError:
        raise MalformedJSON(_too_deep()) from None
    except ValueError:
        # The interpreter's own limit on the digits of an integer.
        raise MalformedJSON("The body holds a number with thousands of digits.") from None
    for _, leaf in walk(value):
        if isinstance(leaf, str) and not _is_text(leaf):
            raise MalformedJSON("The body holds half of a surrogate pair, which is no character.")
    return value


def walk(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every name and every leaf with the path to it, without recursion. Raises MalformedJSON when too deep."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if len(path) >= MAX_DEPTH and isinstance(item, (dict, list)):
            raise MalformedJSON(_too_deep())
        if isinstance(item, dict):
            for name, inner in item.items():
                yield (*path, name), name
                stack.append(((*path, name), inner))
        elif isinstance(item, list):
            stack.extend(((*path, index), inner) for index, inner in enumerate(item))
        else:
            yield path, item


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep() -> str:
    return f"The body is nested deeper than {MAX_DEPTH} levels."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise MalformedJSON(f"The body names {twice[:60]!r} twice in one object.")
    return found


def _refuse_constant(name: str) -> Any:
    raise MalformedJSON(f"{name} is not a JSON number.")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise MalformedJSON(f"{digits[:40]} is beyond any number that can be stored.")
    return number
