"""Compare a text with its previous revision word by word, using difflib. Pure."""

# Lines are compared first, then the words of differing lines. The texts are untrusted, and difflib's time can grow with
# the square of their length. Beyond a limit per page, parts are shown as removed and added without being compared. All
# text is always shown, in order.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import Match, SequenceMatcher
from itertools import accumulate, groupby

SAME, ADDED, REMOVED = "same", "added", "removed"
MAX_PAIRS = 4_000_000  # maximum number of pairs of words or lines compared for one page: about a second
_WORDS = re.compile(r"\s+|\S+")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
Edit = tuple[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of text: in both revisions, `added` in the new one, or `removed` from the old one."""

    what: str
    text: str

    @property
    def words(self) -> int:
        return len(self.text.split())


@dataclass(slots=True)
class Budget:
    """The number of pairs that may still be compared. All comparisons of a page share it."""

    left: int = field(default_factory=lambda: MAX_PAIRS)


class TooManyPairs(Exception):
    """The page's budget is used up."""


class BoundedMatcher(SequenceMatcher[str]):
    """The standard library's matcher, with each search counted against a budget. Raises TooManyPairs."""

    def __init__(self, old: Sequence[str], new: Sequence[str], budget: Budget) -> None:
        super().__init__(None, old, new, autojunk=False)
        self._budget = budget
        counts = Counter(new)
        self._costs = [0, *accumulate(1 + counts[token] for token in old)]

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._budget.left -= self._costs[-1 if ahi is None else ahi] - self._costs[alo]
        if self._budget.left < 0:
            raise TooManyPairs
        return super().find_longest_match(alo, ahi, blo, bhi)


def redline(new: str, old: str, budget: Budget | None = None) -> list[Part]:
    """Return the new text that includes the removed parts, each before the part added in its place.

    Texts of a page share `budget`.
    """
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
    """Join neighbouring parts of one kind, removed before added. Spaces between replaced words count as replaced."""
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
    yield from _differences(middle, gone, budget)
    if tail:
        yield SAME, new[len(new) - tail :]


def _differences(new: Sequence[str], old: Sequence[str], budget: Budget) -> list[Edit]:
    edits: list[Edit] = []
    try:
        for what, x, to_x, y, to_y in BoundedMatcher(old, new, budget).get_opcodes():
            edits += [(SAME, old[x:to_x])] if what == "equal" else [(REMOVED, old[x:to_x]), (ADDED, new[y:to_y])]
    except TooManyPairs:
        edits = [(REMOVED, old), (ADDED, new)]
    return [(what, tokens) for what, tokens in edits if tokens]
