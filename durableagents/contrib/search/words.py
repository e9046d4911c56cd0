"""Search of runs by words: subject, tags, short input values, starter, ends of the id, external ids of effects.

Words of the input are stored as keyed digests, so that only whole words match. The others are metadata, which can be
read elsewhere anyway; they are stored unencrypted, so that prefixes match too. The index of each word is read newest
first, up to a limit, and the rarest word determines the candidates. The result tells whether a limit was reached. In a
search within one agent, its newest `MAX_FOUND` runs are checked as well, so that rare words are found completely."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.codes import mac
from ledger.keys import word_key
from ledger.web.cursors import Order
from ledger.web.seeing.viewers import viewer
from runs.engine.gating.fields import subject
from runs.models import State
from runs.queries.searching import MAX_FOUND
from runs.seen import is_of_seen

MAX_OF_OTHERS = 50_000  # entries examined for restricted viewers and filtered searches
MAX_CANDIDATES = 3  # the longest words are read, to find the rarest
MAX_TERMS = 32  # words per run
MAX_SUBJECT_LENGTH = 10_000  # in characters; a subject can be a value of 64 MiB
MAX_WORD_LENGTH = 64  # in characters; longer words are not searched for
MAX_DEPTH = 3  # levels of nesting in the input that are indexed
_RUNS = Order("runs_run", "created_at")
_DIGEST = "`"  # prefix of digests; words never begin with it
_DIGEST_BYTES = 12
_EDGES = "\"'`.,;:!?()[]{}<>…“”‘’„«»"
_SHOWN_ID = re.compile(r"([0-9a-f]{4,8})?(?:…|\.{2,3})([0-9a-f]{4,12})", re.I)
_AMOUNT = re.compile(r"[$€£]?[0-9]{1,3}(,[0-9]{3})*(\.[0-9]+)?|[$€£][0-9]+(\.[0-9]+)?")
_ZEROS = re.compile(r"^([0-9]+)\.0+$")
_HEX = re.compile(r"[0-9a-f]{4,32}")


def words_in(text: str) -> list[str]:
    """Return the normalized words of a text: casefolded, NFKC, without surrounding punctuation."""
    lowered = unicodedata.normalize("NFKC", text).casefold().replace("\x00", " ")
    return [word for word in (part.strip(_EDGES) for part in lowered.split()) if word]


def terms_of(run_id: UUID, *, by: str, tags: Iterable[str] | dict[str, str], input: Any, key: str = "") -> list[str]:
    """Return a run's search terms, most important first.

    They include the reversed id, because pages show the end of an id."""
    found = [_tail_term(run_id.hex), *_whole(key), *words_in(key)]
    pairs = list(tags.items()) if isinstance(tags, dict) else [(tag, "") for tag in tags]
    for name, value in pairs:
        found += [*_whole(name), *_whole(f"{name}:{value}")] if value else [*_whole(name), *words_in(name)]
        found += words_in(value)
    found += [*words_in(by.partition(":")[2]), *_whole(by)]
    readable = dict.fromkeys(word for word in found if len(word) <= MAX_WORD_LENGTH)
    content = words_in(subject(input)[:MAX_SUBJECT_LENGTH])
    for text in _strings(input, MAX_DEPTH):
        content += words_in(text)
    others = dict.fromkeys(word for word in content if len(word) <= MAX_WORD_LENGTH and word not in readable)
    words = list(readable)[:MAX_TERMS]
    return words + [_digest(word) for word in list(others)[: MAX_TERMS - len(words)]]


def _digest(word: str) -> str:
    """Return the term for a word of the input.

    Equal words in different runs have equal terms, so that a search finds all of them. Trailing zeros of an amount are
    removed: `84000.00` becomes `84000`."""
    word = _ZEROS.sub(r"\1", word)
    return _DIGEST + base64.urlsafe_b64encode(mac(word_key(), word.encode("utf-8", "replace"))[:_DIGEST_BYTES]).decode()


def _tail_term(digits: str) -> str:
    """Return a term for the reversed id, so that the end of an id is found as a prefix.

    The term begins with a character that no word contains."""
    return "…" + digits[::-1]


def _whole(text: str) -> list[str]:
    word = " ".join(words_in(text))
    return [word] if word else []


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) <= MAX_WORD_LENGTH:
            yield value
    elif depth > 0 and isinstance(value, dict):
        plain = [each for each in value.values() if isinstance(each, str)]
        for each in [*plain, *(each for each in value.values() if not isinstance(each, str))]:
            yield from _strings(each, depth - 1)
    elif depth > 0 and isinstance(value, list):
        for each in value[:MAX_TERMS]:
            yield from _strings(each, depth - 1)


def find_by_words(q: str, fit: Mapping[str, str]) -> tuple[list[UUID], bool]:
    """Find runs by words in one query.

    For each word of `q`, a matching run has the word or a stored word that begins with it; its columns match `fit`.
    Returns at most `MAX_FOUND` ids, newest first, and whether an index was read up to its limit, so that more runs may
    match."""
    wanted = [_plain(word) for word in words_in(q)]
    if not wanted:
        return [], False
    who = viewer()
    own, given = is_of_seen("found.run_id", who)
    most = MAX_FOUND if who.sees_all and not fit else MAX_OF_OTHERS
    query = _Query(most)
    _by_words(query, wanted, fit)
    _by_id(query, q.strip())
    _by_effect(query, q.strip())
    narrowed = _FITS.format("".join(f" AND r.{column} = %s" for column in fit)) if fit else "true"
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH {', '.join(query.tables)} SELECT ARRAY(SELECT run_id FROM ({' UNION '.join(query.arms)}) AS found "
            f"WHERE {own} AND {narrowed} ORDER BY run_id DESC LIMIT %s), {' OR '.join(query.cuts)}",
            [*query.of_tables, *query.of_arms, *given, *fit.values(), MAX_FOUND],
        )
        runs, is_cut = cursor.fetchone()
    return runs, is_cut or len(runs) >= MAX_FOUND


def _plain(word: str) -> str:
    """Return an amount in the form that inputs have: `$84,000.00` without the sign and commas."""
    return word.lstrip("$€£").replace(",", "") if _AMOUNT.fullmatch(word) else word


Arm = tuple[str, list[Any]]

# Both statements read the index from one end. For a common prefix, only this many entries are read, regardless of their
# runs.
_EXACT = "SELECT run_id FROM runs_searchterm WHERE term = %s ORDER BY run_id DESC LIMIT %s"
_BEGUN = "SELECT run_id FROM runs_searchterm WHERE term > %s AND term < %s ORDER BY term, run_id DESC LIMIT %s"
# Searches the terms of each candidate. The LIMIT keeps the planner from turning the subquery into a scan of all
# matches.
_HAS = (
    "(SELECT true FROM runs_searchterm AS own "
    "WHERE own.run_id = few.run_id AND (own.term >= %s AND own.term < %s OR own.term = %s) LIMIT 1)"
)
# Checks the run's own columns in the same way.
_FITS = "(SELECT true FROM runs_run AS r WHERE r.id = found.run_id{} LIMIT 1)"


class _Query:
    """Builds the statement of one search.

    `tables` read indexes, `arms` find runs, and `cuts` are conditions that are true if more runs may match."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.tables: list[str] = []
        self.of_tables: list[Any] = []
        self.arms: list[str] = []
        self.of_arms: list[Any] = []
        self.cuts: list[str] = []

    def table(self, *parts: Arm) -> str:
        """Add a common table expression that reads these parts, each up to its limit; return its name."""
        name = f"found{len(self.tables)}"
        every = " UNION ALL ".join(
            f"(SELECT run_id, {n} AS part FROM ({text}) AS p)" for n, (text, _) in enumerate(parts)
        )
        self.tables.append(f"{name} AS MATERIALIZED ({every})")
        self.of_tables += [value for _, values in parts for value in values]
        return name

    def word(self, word: str) -> str:
        """Add a common table expression with the entries of a word and its digest; return its name.

        The entries include stored words that begin with the word."""
        return self.table(
            (_EXACT, [word, self.most]),
            (_EXACT, [_digest(word), self.most]),
            (_BEGUN, [word, _after(word), self.most]),
        )

    def take(self, text: str, *values: Any) -> None:
        """Add a statement that finds runs."""
        self.arms.append(f"({text})")
        self.of_arms += values

    def all_of(self, *parts: Arm) -> None:
        """Add a statement that finds all runs in these parts."""
        name = self.table(*parts)
        self.take(f"SELECT run_id FROM {name}")
        self.cuts.append(self.is_cut(name))

    def is_cut(self, name: str, most: int | None = None) -> str:
        return f"EXISTS (SELECT 1 FROM {name} GROUP BY part HAVING count(*) >= {most or self.most})"


def _by_words(query: _Query, wanted: Sequence[str], fit: Mapping[str, str]) -> None:
    """Add statements that find the runs with all words. The word with the fewest entries determines the candidates."""
    words = sorted(set(wanted), key=len, reverse=True)
    names = {word: query.word(word) for word in words[:MAX_CANDIDATES]}
    sizes = " UNION ALL ".join(
        f"SELECT {n} AS word, {query.is_cut(name)} AS is_cut, (SELECT count(*) FROM {name}) AS entries"
        for n, name in enumerate(names.values())
    )
    query.tables.append(f"sizes AS MATERIALIZED ({sizes})")
    for n, (word, name) in enumerate(names.items()):
        others = [other for other in words if other != word]
        has = "".join(f" AND {_HAS}" for _ in others)
        query.take(
            f"SELECT run_id FROM (SELECT DISTINCT run_id FROM {name}) AS few "
            f"WHERE (SELECT word FROM sizes ORDER BY is_cut, entries, word LIMIT 1) = {n}{has}",
            *(value for other in others for value in _matching(other)),
        )
    cuts = ["(SELECT bool_and(is_cut) FROM sizes)"]
    if len(words) > 1:  # a tag may contain blanks, and is then one term
        name = query.word(" ".join(wanted))
        query.take(f"SELECT run_id FROM {name}")
        cuts.append(query.is_cut(name))
    cut = f"({' OR '.join(cuts)})"
    query.cuts.append(f"({cut} AND {_among(query, wanted, fit)})" if fit else cut)


def _among(query: _Query, wanted: Sequence[str], fit: Mapping[str, str]) -> str:
    """Add a statement that finds the newest matching runs with the words.

    If only few runs match `fit`, all of them are checked. Returns the condition that is true if more runs may match."""
    # the indexes have the state as their first column
    by_state = [{**fit, "state": state.value} for state in State] if "parent" not in fit else [fit]
    few = _RUNS.ids(by_state, limit=MAX_FOUND)
    name = query.table((f"SELECT id AS run_id FROM ({few.sql}) AS newest", list(few.params)))
    words, whole = sorted(set(wanted)), " ".join(wanted)
    has = f"({' AND '.join([_HAS] * len(words))} OR {_HAS})"
    query.take(
        f"SELECT run_id FROM {name} AS few WHERE {has}",
        *(value for word in [*words, whole] for value in _matching(word)),
    )
    return query.is_cut(name, MAX_FOUND)


def _matching(word: str) -> tuple[str, str, str]:
    """Return the parameters for `_HAS`."""
    return word, _after(word), _digest(word)


def _after(word: str) -> str:
    """Return an upper bound for terms that begin with the word. Terms are compared bytewise."""
    return word + "\U0010ffff"


def _by_id(query: _Query, q: str) -> None:
    """Add statements that find runs by their id, its beginning, its end, or both as pages show them: `01a1…95bb`."""
    digits = q.lower().replace("-", "")
    if _HEX.fullmatch(digits):
        first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
        begun = "SELECT id AS run_id FROM runs_run WHERE id >= %s AND id <= %s ORDER BY id DESC LIMIT %s"
        query.all_of((begun, [first, last, query.most]))
        if len(digits) < 32:
            tail = query.word(_tail_term(digits))
            query.take(f"SELECT run_id FROM {tail}")
            query.cuts.append(query.is_cut(tail))
    elif displayed_ids := _SHOWN_ID.fullmatch(q):
        head, tail = (displayed_ids.group(1) or "").lower(), query.word(_tail_term(displayed_ids.group(2).lower()))
        query.take(f"SELECT run_id FROM {tail} AS few WHERE left(run_id::text, %s) = %s", len(head), head)
        query.cuts.append(query.is_cut(tail))


def _by_effect(query: _Query, q: str) -> None:
    spellings = list(dict.fromkeys([q, q.upper(), q.lower()]))
    query.all_of(
        ("SELECT run_id FROM ledger_ledgerentry WHERE external_id = ANY(%s) LIMIT %s", [spellings, query.most])
    )
