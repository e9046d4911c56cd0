"""What a run is about, in one line, and finding it by a word that a person has in hand: whom it is about, a tag, a
number of the input, who started it, its id's beginning or end, the name of what it made elsewhere.

The words of a run are written when it starts, each once, and never change. Looking one up reads the index of that word,
newest run first, and no more than `MOST` entries of it however many runs there are. Who doesn't see every run finds
those that they see, and who asks for some agent's finds those: of a word's newest `MOST_OF_OTHERS` entries, whoever's
they are; and the newest `MOST` of the agent are asked whether they have the words, so of a rare one none is missed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.web.cursors import Order
from ledger.web.seeing.viewers import viewer
from runs.engine.gate.target import subject as subject
from runs.models import Run, SearchTerm, State
from runs.seen import is_of_seen

ABOUT_LENGTH = 200  # characters that a list keeps of it
MOST = 1000  # runs that one search looks at
MOST_OF_OTHERS = 50_000  # entries that are looked at for whoever sees few of them, or asks for few
TERMS = 32  # words of one run
LONGEST = 64  # characters of one word: what is longer is prose, which nobody has in hand
DEPTH = 3  # levels of the input that are read
_RUNS = Order("runs_run", "created_at")
_EDGES = "\"'`.,;:!?()[]{}<>…“”‘’„«»"
_SHOWN = re.compile(r"([0-9a-f]{4,8})?(?:…|\.{2,3})([0-9a-f]{4,12})", re.I)
_AMOUNT = re.compile(r"[$€£]?[0-9]{1,3}(,[0-9]{3})*(\.[0-9]+)?|[$€£][0-9]+(\.[0-9]+)?")
_HEX = re.compile(r"[0-9a-f]{4,32}")


def words_of(text: str) -> list[str]:
    """A text's words as they are compared: one case, one form, without the punctuation around them."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\x00", " ")
    return [word for word in (part.strip(_EDGES) for part in folded.split()) if word]


def terms(run_id: UUID, *, by: str, tags: Iterable[str] | dict[str, str], input: Any, key: str = "") -> list[str]:
    """What a run is found by, what matters most first. Its id read from the end is one of them: people are shown its
    tail."""
    found = [_tail_term(run_id.hex), *_whole(key), *words_of(key)]
    pairs = list(tags.items()) if isinstance(tags, dict) else [(tag, "") for tag in tags]
    for name, value in pairs:
        found += [*_whole(name), *_whole(f"{name}:{value}")] if value else [*_whole(name), *words_of(name)]
        found += words_of(value)
    found += [*words_of(by.partition(":")[2]), *_whole(by)]
    found += words_of(subject(input))
    for text in _strings(input, DEPTH):
        found += words_of(text)
    return list(dict.fromkeys(word for word in found if len(word) <= LONGEST))[:TERMS]


def _tail_term(digits: str) -> str:
    """Ids are kept reversed under a sign that no word begins with, so that an id's end is a beginning."""
    return "…" + digits[::-1]


def _whole(text: str) -> list[str]:
    """A tag as one term, blanks and all."""
    word = " ".join(words_of(text))
    return [word] if word else []


def _strings(value: Any, depth: int) -> Iterator[str]:
    """The short strings of a document, outermost first."""
    if isinstance(value, str):
        if len(value) <= LONGEST:
            yield value
    elif depth > 0 and isinstance(value, dict):
        plain = [each for each in value.values() if isinstance(each, str)]
        for each in [*plain, *(each for each in value.values() if not isinstance(each, str))]:
            yield from _strings(each, depth - 1)
    elif depth > 0 and isinstance(value, list):
        for each in value[:TERMS]:
            yield from _strings(each, depth - 1)


@dataclass(frozen=True, slots=True)
class Match:
    """A run that a search finds, with what lists sort and count it by."""

    id: UUID
    state: str
    created_at: datetime


def found(q: str, **fit: str) -> list[Match]:
    """What is known of the runs that a person may mean, those of some agent alone if asked so. In two queries."""
    ids = matching(q, **fit)
    return (
        [Match(*row) for row in Run.objects.filter(id__in=ids).values_list("id", "state", "created_at")] if ids else []
    )


def matching(q: str, **fit: str) -> list[UUID]:
    """The runs that a person may mean, newest first, at most `MOST`: every word of theirs has to be one of the run's,
    or begin one. Only those whose columns say what `fit` does. In one query, whatever they wrote."""
    wanted = [_plain(word) for word in words_of(q)]
    if not wanted:
        return []
    who = viewer()
    own, given = is_of_seen("found.run_id", who)
    most = MOST if who.sees_all and not fit else MOST_OF_OTHERS
    arms = [*_by_words(wanted, most), *_by_id(q.strip(), most), _by_effect(q.strip(), most)]
    arms += [_among(wanted, fit)] if fit else []
    statement = " UNION ".join(f"({text})" for text, _ in arms)
    narrowed = _FITS.format("".join(f" AND r.{column} = %s" for column in fit)) if fit else "true"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT run_id FROM ({statement}) AS found WHERE {own} AND {narrowed} ORDER BY run_id DESC LIMIT %s",
            [*(value for _, values in arms for value in values), *given, *fit.values(), MOST],
        )
        return [row[0] for row in cursor.fetchall()]


def _plain(word: str) -> str:
    """An amount as pages show it, `$84,000.00`, as inputs hold it: without sign and commas."""
    return word.lstrip("$€£").replace(",", "") if _AMOUNT.fullmatch(word) else word


Arm = tuple[str, list[Any]]

# Each part reads the index from one end. A word that begins many is cut off at as many entries, whichever runs they are
# of.
_WORD = """
    (SELECT run_id FROM runs_searchterm WHERE term = %s ORDER BY run_id DESC LIMIT %s) UNION
    (SELECT run_id FROM runs_searchterm WHERE term > %s AND term < %s ORDER BY term, run_id DESC LIMIT %s)"""
# A look into one run's own terms for each candidate: with a limit in it the planner can't turn it into a walk over all
# that fit the word.
_HAS = (
    "(SELECT true FROM runs_searchterm AS own "
    "WHERE own.run_id = few.run_id AND own.term >= %s AND own.term < %s LIMIT 1)"
)
# The same for what is asked of the run itself.
_FITS = "(SELECT true FROM runs_run AS r WHERE r.id = found.run_id{} LIMIT 1)"


def _by_words(wanted: Sequence[str], most: int) -> Iterator[Arm]:
    """Runs that have them all: the longest word, most likely the rarest, gives the candidates."""
    first, *others = sorted(set(wanted), key=len, reverse=True)
    text, values = _word(first, most)
    if not others:
        yield text, values
        return
    more = [value for word in others for value in (word, _after(word))]
    yield f"SELECT run_id FROM ({text}) AS few WHERE {' AND '.join([_HAS] * len(others))}", [*values, *more]
    yield _word(" ".join(wanted), most)  # a tag with blanks in it is one term


def _among(wanted: Sequence[str], fit: Mapping[str, str]) -> Arm:
    """Of the newest runs that fit those that have the words: where few fit, it is all of them, however many others have
    the words."""
    by_state = [{**fit, "state": state.value} for state in State] if "parent" not in fit else [fit]  # as indexes lie
    few = _RUNS.ids(by_state, limit=MOST)
    words, whole = sorted(set(wanted)), " ".join(wanted)
    given = [value for word in [*words, whole] for value in (word, _after(word))]
    has = f"({' AND '.join([_HAS] * len(words))} OR {_HAS})"
    return f"SELECT run_id FROM (SELECT id AS run_id FROM ({few.sql}) AS newest) AS few WHERE {has}", [
        *few.params,
        *given,
    ]


def _word(word: str, most: int) -> Arm:
    return _WORD, [word, most, word, _after(word), most]


def _after(word: str) -> str:
    """What sorts behind everything that begins with the word: terms are compared byte by byte."""
    return word + "\U0010ffff"


def _by_id(q: str, most: int) -> Iterator[Arm]:
    """By a whole id, its beginning, its end, or both as a page shows them: `01a1…95bb`."""
    digits = q.lower().replace("-", "")
    if _HEX.fullmatch(digits):
        first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
        yield (
            "SELECT id AS run_id FROM runs_run WHERE id >= %s AND id <= %s ORDER BY id DESC LIMIT %s",
            [first, last, most],
        )
        if len(digits) < 32:
            yield _word(_tail_term(digits), most)
    elif shown := _SHOWN.fullmatch(q):
        head, tail = (shown.group(1) or "").lower(), shown.group(2).lower()
        text, values = _word(_tail_term(tail), most)
        yield f"SELECT run_id FROM ({text}) AS few WHERE left(run_id::text, %s) = %s", [*values, len(head), head]


def _by_effect(q: str, most: int) -> Arm:
    """By what another system calls something that the run made there."""
    asked = list(dict.fromkeys([q, q.upper(), q.lower()]))
    return "SELECT run_id FROM ledger_ledgerentry WHERE external_id = ANY(%s) LIMIT %s", [asked, most]


def backfill(runs: Iterable[tuple[UUID, str, Any, Any]]) -> None:
    """Terms of runs from before there were any: (id, created_by, tags, input)."""
    rows = []
    for run_id, by, tags, input in runs:
        rows += [SearchTerm(term=term, run_id=run_id) for term in terms(run_id, by=by, tags=tags, input=input)]
        Run.objects.filter(pk=run_id, about="").update(about=subject(input)[:ABOUT_LENGTH])
    SearchTerm.objects.bulk_create(rows, batch_size=5000, ignore_conflicts=True)
