"""Sanctions screening: a fuzzy match of a name against a bundled list of invented entries.

A score is the best of three comparisons of two normalised names: letter by letter; letter by letter with the words
sorted ("Industries Volga Heavy"); and word by word inside a longer name ("Volga Heavy Industries Export House"). The
first two are lowered if a listed word has no counterpart. ``difflib``'s ratio is twice the matching letters over all
letters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from ..settings import tokens
from ..web.fields import Country, Fields, Name

THRESHOLD = 85
_LIST = Path(__file__).with_name("sanctions.json")
# A listed name inside a longer one is a little less than the name itself, and one word alone proves nothing.
_CONTAINED_WEIGHT = 0.97
_CONTAINED_WORDS = 2
# Most of a name may be words of a trade: "Zürich Precision Tooling" is 85% "Arash Precision Tooling", but nothing in it
# is Arash.
_SAME_WORD = 0.6
_MISSING_WORD_WEIGHT = 0.9
# A bound from letter counts below this can't become a hit, nor a best worth telling; it spares the quadratic
# comparison.
_WORTH_COMPARING = 0.4


@dataclass(frozen=True)
class Listed:
    """One entry of the list; ``spellings`` are its name and aliases, each with its words."""

    name: str
    country: str
    list: str
    reason: str
    aliases: tuple[str, ...]
    spellings: tuple[tuple[str, tuple[str, ...]], ...]


class Screened(Fields):
    """A name to screen. An empty country counts as not given."""

    name: Name
    country: Annotated[Country | None, BeforeValidator(lambda value: value or None)] = None


@cache
def the_list() -> tuple[Listed, ...]:
    return tuple(_listed(entry) for entry in json.loads(_LIST.read_text()))


def screen(query: Mapping[str, Any]) -> dict[str, Any]:
    """Screen a name. The country never hides a match, since it may be false. Raises Problem 422."""
    asked = Screened.read(query)
    scored = _scores(asked.name)
    best = max(score for score, _, _ in scored)
    hits = sorted((hit for hit in scored if hit[0] >= THRESHOLD), key=lambda hit: (-hit[0], hit[1].name))
    return {
        "query": asked.model_dump(),
        "matches": [_shown(*hit) for hit in hits],
        "best": best,
        "threshold": THRESHOLD,
        "is_hit": best >= THRESHOLD,
    }


@lru_cache(maxsize=4096)
def _scores(name: str) -> tuple[tuple[int, Listed, str], ...]:
    words = tuple(tokens(name))
    return tuple(max(_score_spellings(words, listed), key=lambda found: found[0]) for listed in the_list())


def _score_spellings(words: tuple[str, ...], listed: Listed) -> list[tuple[int, Listed, str]]:
    return [(_score(words, theirs), listed, spelling) for spelling, theirs in listed.spellings]


def _score(words: tuple[str, ...], listed: tuple[str, ...]) -> int:
    whole = max(
        _ratio(" ".join(words), " ".join(listed)),
        _ratio(" ".join(sorted(words)), " ".join(sorted(listed))),
    )
    if not all(_is_among(word, words) for word in listed):
        whole *= _MISSING_WORD_WEIGHT
    return round(100 * max(whole, _contained(words, listed) * _CONTAINED_WEIGHT))


def _is_among(word: str, words: tuple[str, ...]) -> bool:
    """Return whether a similar word is among the words, or the word is part of a compound ("Heavyindustries")."""
    return word in "".join(words) or any(_ratio(word, other) >= _SAME_WORD for other in words)


def _ratio(left: str, right: str) -> float:
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    if matcher.real_quick_ratio() < _WORTH_COMPARING or matcher.quick_ratio() < _WORTH_COMPARING:
        return 0.0
    return matcher.ratio()


def _contained(words: tuple[str, ...], listed: tuple[str, ...]) -> float:
    if len(listed) < _CONTAINED_WORDS or len(words) <= len(listed):
        return 0.0
    letters = sum(len(word) for word in listed)
    return sum(len(word) * max(_ratio(word, other) for other in words) for word in listed) / letters


def _shown(score: int, listed: Listed, spelling: str) -> dict[str, Any]:
    return {
        "name": listed.name,
        "score": score,
        "list": listed.list,
        "reason": listed.reason,
        "country": listed.country,
        "aliases": list(listed.aliases),
        "matched_on": spelling,
    }


def _listed(entry: dict[str, Any]) -> Listed:
    spellings = (entry["name"], *entry["aliases"])
    return Listed(
        name=entry["name"],
        country=entry["country"],
        list=entry["list"],
        reason=entry["reason"],
        aliases=tuple(entry["aliases"]),
        spellings=tuple((spelling, tuple(tokens(spelling))) for spelling in spellings),
    )
