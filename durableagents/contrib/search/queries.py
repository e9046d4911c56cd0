"""Pages of runs found by attributes, using indexes, with a limit on the runs that one page examines.

If the rarest required condition has few candidates, all of them are examined. Otherwise runs are read in the order of
the list. A page ends after `MAX_EXAMINED` runs, even if it is not full, and the next page continues there. For
restricted viewers, only runs that they may see are read, because the end of a page reveals which runs were read."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db import connection

from durableagents.contrib.search.conditions import Condition, Rows, declared, resolve, sort_attribute
from durableagents.contrib.search.models import Attribute
from ledger.chain import microseconds
from ledger.web.cursors import at_microseconds
from runs import seen
from runs.queries.expressions import Both, Either, Not
from runs.queries.run_list import BY_WAIT, NEWEST
from runs.queries.searching import AttributePages, AttributeQuery
from runs.queries.shown_attributes import ShownAttribute, of_rows

FEW = 2000  # if there are no more candidates than this, all are examined
MAX_EXAMINED = 20_000  # runs that are examined for one page
MAX_ARMS = 100  # values whose rows are read in parallel
_FIRST = 200  # first number of rows that is read; each further read is four times as large
Sql = tuple[str, list[Any]]
_TRUE: Sql = "true", []
_KINDS = {
    "keyword": "text",
    "keywords": "list of texts",
    "number": "number",
    "money": "US dollars",
    "date": "date",
    "flag": "true or false",
}
# Returns the attributes of a run's head, with name, kind and value of each.
ATTRIBUTES = (
    "(SELECT jsonb_agg(jsonb_build_array(a.name, a.kind, coalesce(a.word, trim_scale(a.number)::text, '')) "
    "ORDER BY a.name, a.n) FROM runs_attribute a WHERE a.run_id = ledger_head.run_id)"
)


def attributes_of(run_ids: Sequence[UUID]) -> dict[UUID, list[ShownAttribute]]:
    """Return the attributes of these runs, in one query."""
    rows = Attribute.objects.filter(run_id__in=run_ids).order_by("run_id", "name", "n")
    return {
        run_id: of_rows((row.name, row.kind, row.text) for row in several)
        for run_id, several in groupby(rows, lambda row: row.run_id)
    }


def known_attributes(agent: str) -> list[tuple[str, str]]:
    """Return name and kind of the attributes by which an agent's runs, or all runs, can be searched."""
    return [(name, " or ".join(map(_KINDS.__getitem__, kinds))) for name, kinds in sorted(declared(agent).items())]


def sort_orders(agent: str) -> list[tuple[str, str]]:
    """Return the attributes by which runs can be sorted, with labels: those with one value and one type."""
    found: list[tuple[str, str]] = []
    for name, kinds in sorted(declared(agent).items()):
        (first, *others) = kinds.values()
        if not others and not first.is_list:
            words = name.replace("_", " ")
            found += [(name, f"{words}, lowest first"), (f"-{name}", f"{words}, highest first")]
    return found


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a run in a list.

    `value` is the text of the attribute by which the list is sorted, if any."""

    at: datetime
    id: UUID
    value: str | None = None


def search_attributes(query: AttributeQuery) -> AttributePages:
    """Resolve the names in a query, and return the function that reads its pages. Raises BadSearch."""
    condition = resolve(query.where, query.agent) if query.where else None
    if query.sort in ("", NEWEST, *BY_WAIT):
        return Search(query, condition).page
    name = query.sort.removeprefix("-")
    attribute = sort_attribute(name, query.agent, (NEWEST.removeprefix("-"), *BY_WAIT))
    return Search(query, condition, Rows(name, attribute, "set", ()), query.sort != name).page


@dataclass(frozen=True, slots=True)
class Search:
    """A search by attributes. Results are sorted by the attribute `by`, or newest first."""

    query: AttributeQuery
    condition: Condition | None
    by: Rows | None = None
    is_descending: bool = True

    def page(self, limit: int, cursor: str) -> tuple[list[UUID], str] | None:
        """Return up to `limit` matching runs in order, and the cursor of the next page, which is "" on the last page.

        The page may have fewer runs. Returns None if the cursor is from another list."""
        start = self._decoded(cursor) if cursor else None
        if cursor and start is None:
            return None
        found, following = self._found(limit, start)
        return [each.id for each in found], self._encoded(following) if following else ""

    @property
    def _order(self) -> tuple[str, bool]:
        return (self.by.name if self.by else "", self.is_descending)

    def _encoded(self, position: Position) -> str:
        parts = [*self._order, position.value, microseconds(position.at), position.id.hex]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    def _decoded(self, cursor: str) -> Position | None:
        try:
            name, is_descending, value, count, digits = json.loads(
                base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
            )
            at = at_microseconds(count) if type(count) is int else None
            if (name, is_descending) != self._order or at is None or not self._is_value(value):
                return None
            return Position(at, UUID(hex=digits), value)
        except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
            return None

    def _is_value(self, value: Any) -> bool:
        if self.by is None or not isinstance(value, str):
            return self.by is None and value is None
        try:
            return bool(self.by.attribute.texts(self.by.attribute.shown([value])))
        except (ValueError, ArithmeticError):
            return False

    def _found(self, limit: int, start: Position | None) -> tuple[list[Position], Position | None]:
        """Return the positions of a page, and the one after which the next page begins (None on the last page)."""
        parts = [each for each in (self.condition, self.by) if each]
        count, cover = _rarest(Both(tuple(parts))) if parts else (FEW + 1, None)
        few = self._few(count, cover)
        if few is not None:
            positions = [Position(*row) for row in _fetch(self._among(few, start, limit + 1))]
            return positions[:limit], positions[limit - 1] if len(positions) > limit else None
        found: list[Position] = []
        left, size = MAX_EXAMINED, max(_FIRST, limit)
        while left > 0:
            size = min(size, left)
            window = _fetch(self._walk(cover, start, size))
            found += [Position(*row) for *row, fits in window if fits]
            if len(found) > limit:
                return found[:limit], found[limit - 1]
            if len(window) < size:
                return found, None
            start, left, size = Position(*window[-1][:3]), left - size, size * 4
        return found, start

    def _few(self, count: int, cover: list[Rows] | None) -> list[UUID] | None:
        """Return all runs that can match, or None if they are too many."""
        who = self.query.who
        if self.query.among is not None:
            return list(self.query.among)
        if cover is not None and count <= FEW:
            own = [rows.condition("a") for rows in cover]
            return _ids([(f"SELECT a.run_id FROM runs_attribute AS a WHERE {text}", values) for text, values in own])
        if not who.sees_all:
            limited = [(text, [*values, FEW + 1]) for text, values in seen.walks(who, self.query.arms)]
            found = _ids([(f"SELECT run_id FROM ({text}) AS of_arm", values) for text, values in limited])
            return found if len(found) <= FEW else None
        if self.query.arms and all(self.query.arms):
            runs, own = "SELECT r.id FROM runs_run AS r WHERE", [_of_run([arm], "r") for arm in self.query.arms]
            arms = [(f"{runs} {text} LIMIT %s", [*values, FEW + 1]) for text, values in own]
            if sum(_counts([(f"SELECT count(*) FROM ({text}) AS found", values) for text, values in arms])) <= FEW:
                return _ids(arms)
        return None

    # --- statements ---------------------------------------------------------------------------------------------------

    def _among(self, ids: Sequence[UUID], start: Position | None, limit: int) -> Sql:
        """Select the runs among these that match and are visible, in order, after a position."""
        own, named = self.by.condition("s") if self.by else _TRUE
        join = f"JOIN runs_attribute AS s ON s.run_id = r.id AND {own}" if self.by else ""
        value = f"s.{self.by.column}::text" if self.by else "NULL"
        columns = self._columns("s", "r.created_at", "r.id")
        parts = [_fits(self.condition, "r.id"), _of_run(self.query.arms, "r"), seen.is_seen("r", self.query.who)]
        whole, values = _joined([*parts, self._after(columns, start)], "AND")
        return (
            f"SELECT r.created_at, r.id, {value} FROM runs_run AS r {join} WHERE r.id = ANY (%s::uuid[]) AND {whole} "
            f"ORDER BY {self._sorted(columns)} LIMIT %s"
        ), [*named, list(ids), *values, limit]

    def _walk(self, cover: list[Rows] | None, start: Position | None, size: int) -> Sql:
        """Select the next runs in order, and for each whether it matches."""
        who, arms = self.query.who, self.query.arms
        each = [one for rows in cover for one in rows.each()] if cover and all(r.is_equality for r in cover) else []
        judged = [_fits(self.condition, "w.run_id")]
        if self.by is not None:
            bounds = [rows.condition("t") for rows in (self.by, *self._bounds())]
            own = _joined([*bounds, seen.is_of_seen("t.run_id", who)], "AND")
            parts = [self._part("runs_attribute", "run_id", own, start, size)]
        elif not who.sees_all:
            after = self._after(("r.created_at", "r.id"), start)
            parts, arms = [(text, [*values, size]) for text, values in seen.walks(who, arms, after)], ()
        elif 0 < len(each) <= MAX_ARMS:
            parts = [self._part("runs_attribute", "run_id", rows.condition("t"), start, size) for rows in each]
        else:
            parts, arms = [self._part("runs_run", "id", _of_run([arm], "t"), start, size) for arm in arms], ()
        if any(arms):
            text, given = _of_run([arm for arm in arms if arm], "r")
            row = f"SELECT true FROM runs_run AS r WHERE r.id = w.run_id AND ({text}) LIMIT 1"
            judged.append((f"coalesce(({row}), false)", given))
        fits, more = _joined(judged, "AND")
        inner, values = _joined(parts, "UNION")  # UNION removes duplicates of runs that match by several values
        order = self._sorted((*(("w.value",) if self.by else ()), "w.created_at", "w.run_id"))
        return (
            f"WITH w AS MATERIALIZED (SELECT w.* FROM ({inner}) AS w ORDER BY {order} LIMIT %s) "
            f"SELECT w.created_at, w.run_id, {'w.value::text' if self.by else 'NULL'}, {fits} FROM w ORDER BY {order}"
        ), [*values, size, *more]

    def _part(self, table: str, run_id: str, own: Sql, start: Position | None, size: int) -> Sql:
        """Select the next runs that meet one condition. An index provides the order of the list."""
        columns = self._columns("t", "t.created_at", f"t.{run_id}")
        after, more = self._after(columns, start)
        value = f", {columns[0]} AS value" if self.by else ""
        return (
            f"SELECT t.{run_id} AS run_id, t.created_at{value} FROM {table} AS t WHERE {own[0]} AND {after} "
            f"ORDER BY {self._sorted(columns)} LIMIT %s"
        ), [*own[1], *more, size]

    def _bounds(self) -> list[Rows]:
        """Return the conditions on the attribute by which the list is sorted.

        Only runs that meet them have to be read.
        """
        parts = self.condition.parts if isinstance(self.condition, Both) else (self.condition,)
        return [part for part in parts if isinstance(part, Rows) and self.by and part.name == self.by.name]

    def _columns(self, attribute: str, *others: str) -> tuple[str, ...]:
        return (f"{attribute}.{self.by.column}", *others) if self.by else others

    def _sorted(self, columns: Sequence[str]) -> str:
        return ", ".join(f"{column} {'DESC' if self.is_descending else 'ASC'}" for column in columns)

    def _after(self, columns: Sequence[str], start: Position | None) -> Sql:
        """Return the SQL condition for rows after a position in the list."""
        if start is None:
            return _TRUE
        row, sign = f"({', '.join(columns)})", "<" if self.is_descending else ">"
        if self.by is None:
            return f"{row} {sign} (%s, %s)", [start.at, start.id]
        cast = "numeric" if self.by.attribute.is_number else "text"
        return f"{row} {sign} (%s::{cast}, %s, %s)", [start.value, start.at, start.id]


def _fits(condition: Condition | None, run: str) -> Sql:
    """Return the SQL condition for a run to match; `run` is an expression for its id.

    Subqueries on the run's rows have a LIMIT, so that the planner can't turn them into a scan of all matching rows."""
    match condition:
        case None:
            return _TRUE
        case Rows():
            text, values = condition.condition("a")
            row = f"SELECT true FROM runs_attribute AS a WHERE a.run_id = {run} AND {text} LIMIT 1"
            return f"coalesce(({row}), false)", values
        case Not(part):
            text, values = _fits(part, run)
            return f"NOT ({text})", values
        case Both(parts):
            return _joined([_fits(part, run) for part in parts], "AND")
        case Either(parts):
            return _joined([_fits(part, run) for part in parts], "OR")


def _of_run(arms: Sequence[Mapping[str, str]], table: str) -> Sql:
    if not all(arms) or not arms:
        return _TRUE
    return _joined([_joined([(f"{table}.{c} = %s", [v]) for c, v in arm.items()], "AND") for arm in arms], "OR")


def _joined(parts: Sequence[Sql], word: str) -> Sql:
    """Join conditions or statements, each in parentheses."""
    return f" {word} ".join(f"({text})" for text, _ in parts), [value for _, values in parts for value in values]


def _fetch(statement: Sql) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(*statement)
        return cursor.fetchall()


def _counts(parts: Sequence[Sql]) -> list[int]:
    text, values = _joined(parts, ",")
    return list(_fetch((f"SELECT {text}", values))[0]) if parts else []


def _ids(parts: Sequence[Sql]) -> list[UUID]:
    return [run_id for (run_id,) in _fetch(_joined(parts, "UNION"))]


# --- the rarest required condition ------------------------------------------------------------------------------------


def _rarest(condition: Condition) -> tuple[int, list[Rows] | None]:
    """Return the conditions with the fewest rows, of which every matching run meets at least one.

    The first value is the number of these rows, at most FEW + 1. The conditions are None if there are none."""
    leaves = list(dict.fromkeys(_leaves(condition)))
    own = [rows.condition("a") for rows in leaves]
    count = "SELECT count(*) FROM (SELECT 1 FROM runs_attribute AS a WHERE {} LIMIT %s) AS found"
    counts = _counts([(count.format(text), [*values, FEW + 1]) for text, values in own])
    return _cover(condition, dict(zip(leaves, counts, strict=True))) or (FEW + 1, None)


def _leaves(condition: Condition) -> Iterator[Rows]:
    match condition:
        case Rows():
            yield condition
        case Both(parts) | Either(parts):
            for part in parts:
                yield from _leaves(part)
        case Not():
            return


def _cover(condition: Condition, counts: Mapping[Rows, int]) -> tuple[int, list[Rows]] | None:
    match condition:
        case Rows():
            return counts[condition], [condition]
        case Both(parts):
            return min((one for part in parts if (one := _cover(part, counts))), key=lambda one: one[0], default=None)
        case Either(parts):
            each = [_cover(part, counts) for part in parts]
            some = [one for one in each if one is not None]
            if len(some) < len(each):
                return None
            return sum(number for number, _ in some), [rows for _, several in some for rows in several]
        case Not():
            return None  # a negation matches most runs, so it doesn't narrow the search
