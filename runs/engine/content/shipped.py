"""Hooks that ship: limits that always hold, and a list of markers that an integrator may add."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import NoneType
from typing import Any

from runs.engine.content.hooks import DESTINATIONS, SOURCES, Piece, Redact, Screen, Withhold, screen

# Characters of one piece. A tool's answer is cut to a part of the model's window long before.
MOST_FOR_MODEL = 2_000_000
MOST_FOR_TOOL = 4_000_000

_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
# What a reader doesn't see and a model does: control characters but tab and line ends, what turns the direction of
# writing, zero width, tags (but in a flag). A joiner alone shapes letters and emoji, one selector picks a form; a row
# of them says something.
_HIDDEN = re.compile(
    "\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f"  # a flag: let pass below
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
    f"|[\u200c\u200d]{{2,}}|[{_SELECTORS}]{{2,}}"
)

# Made once: each call's arguments are measured.
_JSON = json.JSONEncoder(ensure_ascii=False)


def _mark(match: re.Match[str]) -> str:
    found = match.group()
    return found if found[0] == "\U0001f3f4" else "".join(f"[U+{ord(each):04X}]" for each in found)


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Plain data with every text in it changed, names of fields too."""
    match value:
        case str():
            return change(value)
        case list():
            return [each_text(each, change) for each in value]
        case dict():
            return {change(name): each_text(each, change) for name, each in value.items()}
        case _:
            return value


def characters(content: Any) -> int:
    """How large a piece is: of a text its characters, of other data those of its JSON."""
    return len(content) if isinstance(content, str) else len(_JSON.encode(content))


def may_pass_to_tool(content: Any) -> bool:
    return _is_small(content) or characters(content) <= MOST_FOR_TOOL


def _is_small(content: Any) -> bool:
    """Whether it is far below any limit, as most arguments are, told without writing it out."""
    if type(content) is not dict or len(content) > 64:
        return False
    return all(len(name) < 1000 and _is_flat(each) for name, each in content.items())


def _is_flat(value: Any) -> bool:
    return len(value) < 1000 if type(value) is str else isinstance(value, (int, float, NoneType))


def _too_large(piece: Piece) -> Withhold | None:
    size, most = characters(piece.content), MOST_FOR_TOOL if piece.to == "tool" else MOST_FOR_MODEL
    return Withhold(f"{size} characters are more than {most}") if size > most else None


def _marked(piece: Piece) -> Redact | None:
    count = 0

    def change(text: str) -> str:
        nonlocal count
        if text.isascii() and text.isprintable():
            return text
        changed = _HIDDEN.sub(_mark, text)
        count += changed != text
        return changed

    content = each_text(piece.content, change)
    return Redact(content, f"hidden characters are shown by their codes, in {count} texts") if count else None


_ALL_SOURCES = frozenset(SOURCES)
SIZE = Screen("size", "1", _too_large, _ALL_SOURCES, frozenset({"model", "tool"}), is_quick=True)
HIDDEN_CHARACTERS = Screen("hidden_characters", "1", _marked, _ALL_SOURCES, frozenset({"model"}), is_quick=True)
# What nobody can switch off.
ALWAYS = (SIZE, HIDDEN_CHARACTERS)

_FOREIGN = tuple(source for source in SOURCES if source not in ("prompt", "node", "model"))
_MARKERS = re.compile(
    r"\b(?:ignore|disregard|forget)\W{1,9}(?:\w{1,30}\W{1,9}){0,3}?"
    r"(?:previous|prior|above|earlier|your)\W{1,9}(?:\w{1,30}\W{1,9}){0,2}?"
    r"(?:instructions?|prompts?|rules|directions)\b"
    r"|\byou\s{1,9}are\s{1,9}now\s{1,9}(?:in\s{1,9})?(?:developer|dan|jailbreak|god)\b"
    r"|\b(?:reveal|print|repeat|show)\s{1,9}(?:me\s{1,9})?(?:your|the)\s{1,9}(?:system|hidden|initial)\s{1,9}(?:prompt|instructions?)\b"
    r"|<\|(?:im_start|im_end|system|endoftext)\|>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)


@screen(version="1", source=_FOREIGN, to=DESTINATIONS)
def prompt_injection_markers(piece: Piece) -> Withhold | None:
    """Withholds content from outside that speaks to the model as if it gave it orders. A list of markers: it stops what
    is copied, and nobody who words it anew."""
    hits = 0

    def look(text: str) -> str:
        nonlocal hits
        hits += len(_MARKERS.findall(text))
        return text

    each_text(piece.content, look)
    return Withhold(f"{hits} markers of a prompt injection") if hits else None
