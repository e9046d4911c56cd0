"""Pages of runs by attributes, using indexes, with a bound on the runs one page examines.

Few candidates of the rarest required condition are all examined. Else the list is walked in its order, and a page ends
after `MOST` runs, maybe short; the next continues there. Restricted viewers walk only runs they may see, because a
page's end is revealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from uuid import UUID

from durableagents.contrib.search import order, statements
from durableagents.contrib.search.conditions import Condition, Rows, declared, resolve, sort_attribute
from durableagents.contrib.search.models import Attribute
from durableagents.contrib.search.order import AttributeOrder, Position
from durableagents.contrib.search.statements import Sql
from runs import seen
from runs.queries.expressions import Both, Either, Not
from runs.queries.run_list import BY_WAIT, NEWEST
from runs.queries.searching import AttributePages, AttributeQuery
from runs.queries.shown_attributes import ShownAttribute, of_rows

FEW = 2000  # runs that are all examined
MOST = 20_000  # runs that one page examines on its way
MAX_ARMS = 100  # values whose rows are walked in parallel
_FIRST = 200  # size of a walk's first window; each is four times the one before
_KINDS = {
    "keyword": "text",
    "keywords": "list of texts",
    "number": "number",
    "money": "US dollars",
    "date": "date",
    "flag": "true or false",
}
# Values of the attributes of a run, for its head: name, kind and value of each.
ATTRIBUTES = (
    "(SELECT jsonb_agg(jsonb_build_array(a.name, a.kind, coalesce(a.word, trim_scale(a.number)::text, '')) "
    "ORDER BY a.name, a.n) FROM runs_attribute a WHERE a.run_id = ledger_head.run_id)"
)


def attributes_of(run_ids: Sequence[UUID]) -> dict[UUID, list[ShownAttribute]]:
    """Return these runs' attributes, in one query."""
    rows = Attribute.objects.filter(run_id__in=run_ids).order_by("run_id", "name", "n")
    return {
        run_id: of_rows((row.name, row.kind, row.text) for row in several)
        for run_id, several in groupby(rows, lambda row: row.run_id)
    }


def known_attributes(agent: str) -> list[tuple[str, str]]:
    """Return the attributes by which an agent's runs, or all runs, can be searched: name and kind."""
    return [(name, " or ".join(map(_KINDS.__getitem__, kinds))) for name, kinds in sorted(declared(agent).items())]


def sort_orders(agent: str) -> list[tuple[str, str]]:
    """Return the orders by attributes and their labels: of those with one value and one type."""
    found: list[tuple[str, str]] = []
    for name, kinds in sorted(declared(agent).items()):
        (first, *others) = kinds.values()
        if not others and not first.is_list:
            words = name.replace("_", " ")
            found += [(name, f"{words}, lowest first"), (f"-{name}", f"{words}, highest first")]
    return found


def search_attributes(query: AttributeQuery) -> AttributePages:
    """Resolve the names in a query, and return its pages. Raises BadSearch."""
    condition, by = resolve(query.where, query.agent) if query.where else None, None
    if query.sort not in ("", NEWEST, *BY_WAIT):
        name = query.sort.removeprefix("-")
        attribute = sort_attribute(name, query.agent, (NEWEST.removeprefix("-"), *BY_WAIT))
        by = AttributeOrder(name, attribute, query.sort != name)
    return Search(query, condition, by).page


@dataclass(frozen=True, slots=True)
class Search:
    """A search by attributes. Without an order by an attribute, newest first."""

    query: AttributeQuery
    condition: Condition | None
    by: AttributeOrder | None = None

    @property
    def whole(self) -> Condition | None:
        """Return the condition, including that the run has the attribute it is sorted by."""
        parts = [*([self.condition] if self.condition else []), *([self.by.rows] if self.by else [])]
        return Both(tuple(parts)) if parts else None

    def page(self, limit: int, cursor: str) -> tuple[list[UUID], str] | None:
        """Return up to `limit` matching runs in order, maybe fewer, and the cursor of the next page, "" on the last.
        None for a cursor of another list."""
        start = order.decode(cursor, self.by) if cursor else None
        if cursor and start is None:
            return None
        found, following = self._found(limit, start)
        return [each.id for each in found], order.encode(following, self.by) if following else ""

    def _found(self, limit: int, start: Position | None) -> tuple[list[Position], Position | None]:
        """Return a page's positions, and the one after which the next page begins, None on the last."""
        count, cover = _rarest(self)
        few = _few(self, count, cover)
        if few is not None:
            own = seen.is_seen("r", self.query.who)
            statement = statements.among(few, self.whole, self.query.arms, self.by, start, limit + 1, own)
            positions = [Position(at, run_id, value) for run_id, at, value in statements.fetch(statement)]
            return positions[:limit], positions[limit - 1] if len(positions) > limit else None
        found: list[Position] = []
        for window, is_last in _windows(self, cover, max(_FIRST, limit), start):
            found += [position for position, fits in window if fits]
            if len(found) > limit:
                return found[:limit], found[limit - 1]
            if is_last:
                return found, None
            start = window[-1][0]
        return found, start


def _windows(
    search: Search, cover: list[Rows] | None, size: int, start: Position | None
) -> Iterator[tuple[list[tuple[Position, bool]], bool]]:
    """Yield windows of runs with whether they match, and whether the window is the last."""
    left = MOST
    while left > 0:
        size = min(size, left)
        rows = statements.fetch(_walk(search, cover, start, size))
        window = [(Position(at, run_id, value), bool(fits)) for run_id, at, value, fits in rows]
        yield window, len(window) < size
        start, left, size = window[-1][0], left - size, size * 4


def _walk(search: Search, cover: list[Rows] | None, start: Position | None, size: int) -> Sql:
    """Return the statement for the next runs in order, and whether each matches."""
    by, who, arms = search.by, search.query.who, [arm for arm in search.query.arms if arm]
    if by is not None:
        own = seen.is_of_seen("s.run_id", who)
        return statements.by_value(by, _bounds(search, by), start, size, search.condition, arms, own)
    if not who.sees_all:
        walks = partial(seen.walks, who, search.query.arms)
        return statements.by_walks(walks, start, size, search.condition)
    if cover is not None and all(rows.is_equality for rows in cover):
        each = [one for rows in cover for one in rows.each()]
        if len(each) <= MAX_ARMS:
            return statements.by_equality(each, start, size, search.condition, arms)
    return statements.by_time(search.query.arms, start, size, search.condition)


def _bounds(search: Search, by: AttributeOrder) -> list[Rows]:
    """Return the condition's bounds on the sort attribute, within which to walk."""
    parts = search.condition.parts if isinstance(search.condition, Both) else (search.condition,)
    return [part for part in parts if isinstance(part, Rows) and part.name == by.name]


# --- the rarest required condition ------------------------------------------------------------------------------------


def _rarest(search: Search) -> tuple[int, list[Rows] | None]:
    """Return the smallest known count, up to FEW + 1, and rows of which every matching run has one."""
    if search.whole is None:
        return FEW + 1, None
    leaves = list(dict.fromkeys(_leaves(search.whole)))
    counts = dict(zip(leaves, _counted([statements.counted(rows, FEW + 1) for rows in leaves]), strict=True))
    return _cover(search.whole, counts) or (FEW + 1, None)


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
            return None  # most runs lack most things


def _few(search: Search, count: int, cover: list[Rows] | None) -> list[UUID] | None:
    """Return all runs that can match, if they are few."""
    query = search.query
    if query.among is not None:
        return list(query.among)
    if cover is not None and count <= FEW:
        return _ids([statements.runs_of(rows) for rows in cover])
    if not query.who.sees_all:
        limited = [(text, [*values, FEW + 1]) for text, values in seen.walks(query.who, query.arms)]
        found = _ids([(f"SELECT run_id FROM ({text}) AS of_arm", values) for text, values in limited])
        return found if len(found) <= FEW else None
    arms = [arm for arm in query.arms if arm]
    if arms and len(arms) == len(query.arms):
        of_arms = [statements.runs_in(arm, FEW + 1) for arm in arms]
        if sum(_counted([(f"SELECT count(*) FROM ({text}) AS found", values) for text, values in of_arms])) <= FEW:
            return _ids(of_arms)
    return None


def _counted(parts: list[Sql]) -> list[int]:
    if not parts:
        return []
    text, values = statements.joined(parts, ",")
    return list(statements.fetch((f"SELECT {text}", values))[0])


def _ids(parts: list[Sql]) -> list[UUID]:
    return [run_id for (run_id,) in statements.fetch(statements.joined(parts, "UNION"))]
