"""Strict JSON for input: I-JSON (RFC 7493).

Python's parser also accepts NaN, 1e999, repeated names, lone surrogates and any depth, which other parsers interpret
differently.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
# Limit for array items and object members together. A parsed container takes a hundred times its bytes, so a limit on
# bytes is not enough.
MAX_VALUES = 50_000
MAX_EXACT_INTEGER = 2**53 - 1


class MalformedJSON(ValueError):
    """The bytes are not acceptable JSON; the message is for the sender."""


def loads(body: bytes) -> Any:
    """Parse a JSON text in UTF-8. Raises MalformedJSON."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJSON(f"The body is not UTF-8 (byte {error.start}).") from None
    if text.startswith("\ufeff"):
        raise MalformedJSON("The body starts with a byte order mark; send it without one.")
    if _values(text) > MAX_VALUES:
        raise MalformedJSON(f"The body contains more than {MAX_VALUES} values.")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except MalformedJSON:
        raise
    except json.JSONDecodeError as error:
        raise MalformedJSON(f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except RecursionError:
        raise MalformedJSON(_too_deep()) from None
    except ValueError:
        # The interpreter's own limit on integer digits.
        raise MalformedJSON("The body contains a number with thousands of digits.") from None
    if not _is_shallow(value):
        raise MalformedJSON(_too_deep())
    # Decoding has already refused raw surrogates, so only an escape can produce one.
    if "\\ud" in text.lower() and not all(_is_text(leaf) for _, leaf in walk(value) if isinstance(leaf, str)):
        raise MalformedJSON("The body contains half of a surrogate pair, which is not a character.")
    return value


def is_doubtful(body: bytes) -> bool:
    """Return whether text read by `loads` may hold NUL or an integer beyond ±(2^53 - 1), with false positives."""
    return rb"\u0000" in body or _SIXTEEN_DIGITS.search(body) is not None


def walk(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield every name and leaf with its path, without recursion.

    Building paths is slow: call this only for values that may be invalid.
    """
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            for name, inner in item.items():
                yield (*path, name), name
                stack.append(((*path, name), inner))
        elif isinstance(item, list):
            stack.extend(((*path, index), inner) for index, inner in enumerate(item))
        else:
            yield path, item


_SIXTEEN_DIGITS = re.compile(rb"[0-9]{16}")
_CONTAINERS = (dict, list)


def _is_shallow(value: Any) -> bool:
    """Check the depth level by level, looking at each value once and building no paths."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(MAX_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, _CONTAINERS)]
        if not level:
            return True
    return False


def _values(text: str) -> int:
    """Return an upper bound for the number of values in a JSON text before parsing.

    Each value comes with a comma or an opening bracket. Strings are removed only if the first count is too high. Every
    step takes linear time, unlike a regular expression for strings, which would be slow on a text with an unclosed one.
    """
    count = _structure(text)
    if count > MAX_VALUES:
        bare = text.replace("\\\\", "").replace('\\"', "")
        count = _structure("".join(bare.split('"')[::2]))
    return count


def _structure(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


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
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise MalformedJSON(f"The body contains {twice[:60]!r} twice in one object.")
    return members


def _refuse_constant(name: str) -> Any:
    raise MalformedJSON(f"{name} is not a JSON number.")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise MalformedJSON(f"{digits[:40]} is out of range.")
    return number
