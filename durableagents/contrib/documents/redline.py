"""Compare a text with its previous revision word by word, with Myers' algorithm (An O(ND) Difference Algorithm and Its
Variations, 1986). Pure."""

# First on lines, then on the words of differing lines. The cost grows with the differences, and the texts are
# untrusted: past a bound for the page, uncompared parts are shown as removed and added. All text is always shown, in
# order.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

SAME, ADDED, REMOVED = "same", "added", "removed"
MAX_EDITS = 600  # maximum edit distance that is compared
MAX_PAIRS = 400_000  # pairs compared for one page, about a second
_WORDS = re.compile(r"\s+|\S+")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
Edit = tuple[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text: in both revisions, `added` in the new one, or `removed` from the old."""

    what: str
    text: str

    @property
    def words(self) -> int:
        return len(self.text.split())


@dataclass(slots=True)
class Budget:
    """The pairs that may still be compared, shared by comparisons of one page."""

    left: int = field(default_factory=lambda: MAX_PAIRS)


def redline(new: str, old: str, budget: Budget | None = None) -> list[Part]:
    """Return the new text with the removals in place, removed before added. Texts of a page share `budget`."""
    budget = budget or Budget()
    parts: list[Part] = []
    lines = _edits(_LINES.findall(new), _LINES.findall(old), budget)
    for what, group in groupby(lines, lambda edit: edit[0] == SAME):
        edits = list(group)
        if what:
            parts += [Part(SAME, "".join(some)) for _, some in edits]
            continue
        added, removed = (_text(edits, each) for each in (ADDED, REMOVED))
        words = _edits(_WORDS.findall(added), _WORDS.findall(removed), budget)
        parts += [Part(of, "".join(some)) for of, some in words]
    return list(_joined(parts))


def _text(edits: Sequence[Edit], what: str) -> str:
    return "".join("".join(tokens) for of, tokens in edits if of == what)


def _joined(parts: Sequence[Part]) -> Iterator[Part]:
    """Join neighbours of one kind, removed before added. Blanks between replaced words count as replaced."""
    spaced = [*parts]
    for n in range(1, len(parts) - 1):
        around = {parts[n - 1].what, parts[n + 1].what} - {SAME}
        if parts[n].what == SAME and not parts[n].text.strip() and "\n" not in parts[n].text and len(around) == 2:
            spaced[n] = Part("both", parts[n].text)
    for is_same, group in groupby(spaced, lambda part: part.what == SAME):
        run = list(group)
        if is_same:
            yield Part(SAME, "".join(part.text for part in run))
            continue
        for what in (REMOVED, ADDED):
            if text := "".join(part.text for part in run if part.what in (what, "both")):
                yield Part(what, text)


def _edits(new: Sequence[str], old: Sequence[str], budget: Budget) -> Iterator[Edit]:
    head = next((n for n, (a, b) in enumerate(zip(new, old, strict=False)) if a != b), min(len(new), len(old)))
    rest, before = new[head:], old[head:]
    pairs = zip(reversed(rest), reversed(before), strict=False)
    tail = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(rest), len(before)))
    middle, gone = rest[: len(rest) - tail], before[: len(before) - tail]
    if head:
        yield SAME, new[:head]
    found = _shortest(middle, gone, budget) if middle and gone else None
    if found is None:
        yield from ((what, tokens) for what, tokens in ((REMOVED, gone), (ADDED, middle)) if tokens)
    else:
        yield from found
    if tail:
        yield SAME, new[len(new) - tail :]


def _shortest(new: Sequence[str], old: Sequence[str], budget: Budget) -> list[Edit] | None:
    """Return the shortest edit script; None if it exceeds the limits."""
    furthest, trace = {1: 0}, []
    for steps in range(min(len(new) + len(old), MAX_EDITS) + 1):
        trace.append(dict(furthest))
        for diagonal in range(-steps, steps + 1, 2):
            is_down = diagonal == -steps or (diagonal != steps and furthest[diagonal - 1] < furthest[diagonal + 1])
            x = furthest[diagonal + 1] if is_down else furthest[diagonal - 1] + 1
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y, budget.left = x + 1, y + 1, budget.left - 1
            furthest[diagonal] = x
            if x >= len(old) and y >= len(new):
                return _way_back(trace, new, old)
        budget.left -= steps + 1
        if budget.left < 0:
            return None
    return None


def _way_back(trace: Sequence[dict[int, int]], new: Sequence[str], old: Sequence[str]) -> list[Edit]:
    x, y, edits = len(old), len(new), []
    for steps in range(len(trace) - 1, -1, -1):
        furthest, diagonal = trace[steps], x - y
        is_down = diagonal == -steps or (diagonal != steps and furthest[diagonal - 1] < furthest[diagonal + 1])
        before = diagonal + 1 if is_down else diagonal - 1
        from_x = furthest[before]
        from_y = from_x - before
        start = (from_x, from_y + 1) if is_down else (from_x + 1, from_y)
        if steps == 0:
            start = (0, 0)
        if x > start[0]:
            edits.append((SAME, old[start[0] : x]))
        if steps:
            edits.append((ADDED, new[from_y : from_y + 1]) if is_down else (REMOVED, old[from_x : from_x + 1]))
        x, y = from_x, from_y
    return edits[::-1]
