"""Show untrusted text so that nothing in it can hide or pose as something else. Pure: no Django, no I/O."""

# Invisible characters become marks that name the code point; letters that look Latin inside a Latin word are marked;
# long runs of spaces are counted, so that they can't push content off the screen. Single-line values are truncated,
# with a note about the rest. Path names that aren't plain words are quoted, so that no two paths look alike.
#
# Sources: Unicode general categories (UAX #44), default-ignorable code points (UAX #44 §5.3), mixed-script detection
# (UTS #39 §5).

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ledger.codec import Cut

MAX_NEWLINES = 2
MAX_BLANKS = 8
MAX_INDENT = 120
MAX_MARKS_PER_LETTER = 2
MAX_LINE = 80
MAX_PATH = 160

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Characters that are invisible although their category is letter, mark or symbol.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Scripts with letters that pass for Latin ones; UTS #39 calls words that mix them with Latin suspicious.
_LOOK_ALIKE = ("CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "CHEROKEE", "LISU", "FULLWIDTH", "MATHEMATICAL", "DESERET")
_RUNS = re.compile(rf"\n{{{MAX_NEWLINES + 1},}}| {{{MAX_BLANKS + 1},}}|\w+")

# Nearly all text is printable ASCII without long runs of spaces or line breaks, and needs no marks.
_HARMLESS = re.compile(r"[ -~\n]*")
_LONG_BLANKS, _LONG_BREAKS = " " * (MAX_BLANKS + 1), "\n" * (MAX_NEWLINES + 1)


@dataclass(frozen=True, slots=True)
class Piece:
    """Text to draw unchanged, or a mark (`is_mark`) for something invisible; `title` explains a mark."""

    text: str
    is_mark: bool = False
    title: str = ""


def pieces(text: str, *, is_code: bool = False) -> list[Piece]:
    """Split text into drawable pieces and marks. In code, indentation is drawn unchanged, not replaced by a mark."""
    if is_harmless(text):
        return [Piece(text)] if text else []
    found: list[Piece] = []
    plain: list[str] = []
    for piece in _walk(text, is_code):
        if not piece.is_mark:
            plain.append(piece.text)
            continue
        if plain:
            found.append(Piece("".join(plain)))
            plain = []
        found.append(piece)
    if plain:
        found.append(Piece("".join(plain)))
    return found


def is_harmless(text: str) -> bool:
    """Return whether the text can be drawn unchanged."""
    return _HARMLESS.fullmatch(text) is not None and _LONG_BLANKS not in text and _LONG_BREAKS not in text


def line_pieces(text: str, most: int = MAX_LINE) -> list[Piece]:
    """Return text as one line of at most `most` characters, with a mark where it was truncated."""
    found: list[Piece] = []
    for part, broken in zip(text[:most].split("\n"), [False, *[True] * text[:most].count("\n")], strict=True):
        found += [Piece("line break", True, "A line break, not shown here")] if broken else []
        found += pieces(part) if part else []
    rest = len(text) - most
    return (
        found
        if rest <= 0
        else [*found, Piece(f"… {rest:,} more", True, f"{rest:,} more characters are not drawn here")]
    )


def middle(text: str, most: int = MAX_PATH) -> list[Piece]:
    """Return text on one line, shortened in the middle: the last name of a long path matters as much as the first."""
    if len(text) <= most:
        return line_pieces(text, most)
    head, tail = text[: most // 2], text[-(most // 2) :]
    left_out = len(text) - len(head) - len(tail)
    return [
        *line_pieces(head, most),
        Piece(f"… {left_out:,} …", True, f"{left_out:,} characters in between are not drawn here"),
        *line_pieces(tail, most),
    ]


def _walk(text: str, is_code: bool) -> Iterator[Piece]:
    at = 0
    for match in _RUNS.finditer(text):
        yield from _characters(text[at : match.start()])
        run = match.group()
        if run[0] == "\n":
            yield Piece("\n")
            yield Piece(f"line break × {len(run):,}", True, f"{len(run):,} line breaks in a row, drawn as one")
            yield Piece("\n")
        elif run[0] == " " and is_code and len(run) <= MAX_INDENT:
            yield Piece(run)
        elif run[0] == " ":
            yield Piece(f"space × {len(run):,}", True, f"{len(run):,} spaces in a row")
        else:
            yield from _word(run)
        at = match.end()
    yield from _characters(text[at:])


def _characters(text: str) -> Iterator[Piece]:
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        yield _mark(character) if is_hidden(character) or marks > MAX_MARKS_PER_LETTER else Piece(character)


def _word(word: str) -> Iterator[Piece]:
    suspects = look_alikes(word)
    if not suspects:
        yield from _characters(word)
        return
    for character in word:
        if character in suspects:
            name = unicodedata.name(character, "unnamed").lower()
            yield Piece(f"{character} U+{ord(character):04X}", True, f"Looks like a Latin letter but is {name}")
        else:
            yield from _characters(character)


def _mark(character: str) -> Piece:
    name = unicodedata.name(character, "a character without a name")
    return Piece(f"U+{ord(character):04X}", True, f"Invisible character: {name.lower()}")


def is_hidden(character: str) -> bool:
    """Return whether the character is invisible, or changes how its neighbours are drawn."""
    if character in "\n ":
        return False
    if character in _BLANK_LETTERS or unicodedata.category(character) in _HIDDEN_CATEGORIES:
        return True
    point = ord(character)
    return 0xFE00 <= point <= 0xFE0F or 0xE0000 <= point <= 0xE0FFF or 0x180B <= point <= 0x180F


def look_alikes(word: str) -> set[str]:
    """Return letters of another script inside a word with Latin ones; empty for a word of one script."""
    names = {character: unicodedata.name(character, "") for character in set(word) if character.isalpha()}
    if not any(name.startswith("LATIN") for name in names.values()):
        return set()
    return {character for character, name in names.items() if name.startswith(_LOOK_ALIKE)}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value of a JSON document with its path, for example `lines[0].sku`.

    `kind` is its JSON type. Paths are unique: a name that isn't a plain word is quoted in brackets, as in
    `lines[0]["a.b"]`.
    """

    path: str
    text: str
    kind: str


def leaves(value: Any, path: str = "") -> list[Leaf]:
    """Return every leaf of a JSON value in order, including empty containers.

    This is iterative, because senders choose the depth.
    """
    return list(each_leaf(value, path))


def each_leaf(value: Any, path: str = "") -> Iterator[Leaf]:
    """Yield the leaves of a JSON value lazily."""
    todo: list[tuple[str, Any]] = [(path, value)]
    while todo:
        where, item = todo.pop()
        if isinstance(item, dict) and item:
            todo.extend(reversed([(_below(where, str(key)), inner) for key, inner in item.items()]))
        elif isinstance(item, list) and item:
            todo.extend(reversed([(f"{where}[{n}]", inner) for n, inner in enumerate(item)]))
        else:
            yield _leaf(where, item)


_EXACT, _MAX_WRITTEN_OUT = 2**53, 10**21
_PLAIN_NAME = re.compile(r"[^\W\d][\w-]*")


def _below(where: str, name: str) -> str:
    if not _PLAIN_NAME.fullmatch(name):
        return f"{where}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{where}.{name}" if where else name


def _leaf(path: str, item: Any) -> Leaf:
    if item is None:
        return Leaf(path, "null", "null")
    if isinstance(item, bool):
        return Leaf(path, "true" if item else "false", "boolean")
    if isinstance(item, float) and _EXACT <= abs(item) < _MAX_WRITTEN_OUT:
        # The number is written as in hashed content (RFC 8785).
        return Leaf(path, f"{Decimal(repr(item)).normalize():f}", "number")
    if isinstance(item, (int, float)):
        return Leaf(path, str(item), "number")
    if isinstance(item, (dict, list)):
        return Leaf(path, "{}" if isinstance(item, dict) else "[]", "empty")
    if isinstance(item, Cut):
        return Leaf(path, item, "cut")
    return Leaf(path, str(item), "string")


@dataclass(frozen=True, slots=True)
class Change:
    """One leaf compared with the earlier version: `what` is same, changed, added or removed."""

    path: str
    what: str
    new: Leaf | None
    old: Leaf | None


def compare(new: Iterable[Leaf], old: Iterable[Leaf]) -> list[Change]:
    """Return the changes in the new version's order, then the removed leaves."""
    before = {leaf.path: leaf for leaf in old}
    changes = []
    for leaf in new:
        earlier = before.pop(leaf.path, None)
        what = "added" if earlier is None else "same" if earlier == leaf else "changed"
        changes.append(Change(leaf.path, what, leaf, earlier))
    changes.extend(Change(path, "removed", None, leaf) for path, leaf in before.items())
    return changes
