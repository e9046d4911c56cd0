"""Pages of runs by attributes, using indexes, with a bound on the runs one page examines.

Few candidates of the rarest required condition are all examined. Else the list is walked in its order, and a page ends
after `MOST` runs, maybe short; the next continues there. Restricted viewers walk only runs they may see, because a
page's end is revealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.db import connection

from ledger.web.seeing.viewers import EVERYTHING, Viewer
from runs import seen
from runs.queries.attributes import statements
from runs.queries.attributes.meaning import All, Any_, Condition, Has, Lacks, Rows
from runs.queries.attributes.places import By, Spot
from runs.queries.attributes.statements import Sql

FEW = 2000  # runs that are all examined
MOST = 20_000  # runs that one page examines on its way
MAX_ARMS = 100  # values whose rows are walked in parallel
_FIRST = 200  # size of a walk's first window; each is four times the one before
Arms = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Sought:
    """A search. One of `arms`, conditions on the run's columns, must hold; `among` limits it to these runs.
    Without an order by an attribute, newest first."""

    condition: Condition | None
    arms: Arms
    by: By | None = None
    among: Sequence[UUID] | None = None
    who: Viewer = EVERYTHING

    @property
    def whole(self) -> Condition | None:
        """Return the condition, including that the run has the attribute it is sorted by."""
        parts = [*([self.condition] if self.condition else []), *([Has(self.by.rows)] if self.by else [])]
        return All(tuple(parts)) if parts else None


@dataclass(frozen=True, slots=True)
class Found:
    """A page: places in order, and the place after which the next page begins (None: last page)."""

    spots: list[Spot]
    following: Spot | None


def search(sought: Sought, *, limit: int, beyond: Spot | None = None) -> Found:
    """Return up to `limit` matching runs in order, after a place."""
    count, cover = _rarest(sought)
    few = _few(sought, count, cover)
    if few is not None:
        own = seen.is_seen("r", sought.who)
        looked_up = statements.looked_up(few, sought.whole, sought.arms, sought.by, beyond, limit + 1, own)
        spots = statements.spots(looked_up)
        return Found(spots[:limit], spots[limit - 1] if len(spots) > limit else None)
    found: list[Spot] = []
    for window, is_last in _windows(sought, cover, max(_FIRST, limit), beyond):
        found += [spot for spot, fits in window if fits]
        if len(found) > limit:
            return Found(found[:limit], found[limit - 1])
        if is_last:
            return Found(found, None)
        place = window[-1][0]
    return Found(found, place)


def _windows(
    sought: Sought, cover: list[Rows] | None, size: int, place: Spot | None
) -> Iterator[tuple[list[tuple[Spot, bool]], bool]]:
    """Yield windows of runs with whether they match, and whether the window is the last."""
    left = MOST
    while left > 0:
        size = min(size, left)
        walk = _walk(sought, cover, place, size)
        window = statements.judged(walk)
        yield window, len(window) < size
        place, left, size = window[-1][0], left - size, size * 4


def _walk(sought: Sought, cover: list[Rows] | None, place: Spot | None, size: int) -> Sql:
    """Return the statement for the next runs in order, and whether each matches."""
    by, arms = sought.by, [arm for arm in sought.arms if arm]
    if by is not None:
        own = seen.is_of_seen("s.run_id", sought.who)
        return statements.by_value(by, _bounds(sought), place, size, sought.condition, arms, own)
    if not sought.who.sees_all:
        walks = partial(seen.walks, sought.who, sought.arms)
        return statements.by_walks(walks, place, size, sought.condition)
    if cover is not None and all(rows.is_equality for rows in cover):
        each = [one for rows in cover for one in rows.each()]
        if len(each) <= MAX_ARMS:
            return statements.by_equality(each, place, size, sought.condition, arms)
    return statements.by_time(sought.arms, place, size, sought.condition)


def _bounds(sought: Sought) -> list[Rows]:
    """Return the condition's bounds on the sort attribute, within which to walk."""
    parts = sought.condition.parts if isinstance(sought.condition, All) else (sought.condition,)
    assert sought.by is not None
    return [part.rows for part in parts if isinstance(part, Has) and part.rows.name == sought.by.name]


# --- the rarest required condition ------------------------------------------------------------------------------------


def _rarest(sought: Sought) -> tuple[int, list[Rows] | None]:
    """Return the smallest known count, up to FEW + 1, and rows of which every matching run has one."""
    if sought.whole is None:
        return FEW + 1, None
    leaves = list(dict.fromkeys(_leaves(sought.whole)))
    counts = dict(zip(leaves, _counted([statements.counted(rows, FEW + 1) for rows in leaves]), strict=True))
    return _cover(sought.whole, counts) or (FEW + 1, None)


def _leaves(condition: Condition) -> Iterator[Rows]:
    match condition:
        case Has(rows):
            yield rows
        case All(parts) | Any_(parts):
            for part in parts:
                yield from _leaves(part)
        case Lacks():
            return


def _cover(condition: Condition, counts: Mapping[Rows, int]) -> tuple[int, list[Rows]] | None:
    match condition:
        case Has(rows):
            return counts[rows], [rows]
        case All(parts):
            return min((one for part in parts if (one := _cover(part, counts))), key=lambda one: one[0], default=None)
        case Any_(parts):
            each = [_cover(part, counts) for part in parts]
            some = [one for one in each if one is not None]
            if len(some) < len(each):
                return None
            return sum(number for number, _ in some), [rows for _, several in some for rows in several]
        case Lacks():
            return None  # most runs lack most things


def _few(sought: Sought, count: int, cover: list[Rows] | None) -> list[UUID] | None:
    """Return all runs that can match, if they are few."""
    if sought.among is not None:
        return list(sought.among)
    if cover is not None and count <= FEW:
        return _ids([statements.runs_of(rows) for rows in cover])
    if not sought.who.sees_all:
        return _few_seen(sought)
    arms = [arm for arm in sought.arms if arm]
    if arms and len(arms) == len(sought.arms):
        of_arms = [statements.runs_in(arm, FEW + 1) for arm in arms]
        if sum(_counted([(f"SELECT count(*) FROM ({text}) AS found", values) for text, values in of_arms])) <= FEW:
            return _ids(of_arms)
    return None


def _few_seen(sought: Sought) -> list[UUID] | None:
    limited = [(text, [*values, FEW + 1]) for text, values in seen.walks(sought.who, sought.arms)]
    found = _ids([(f"SELECT run_id FROM ({text}) AS of_arm", values) for text, values in limited])
    return found if len(found) <= FEW else None


def _counted(parts: list[Sql]) -> list[int]:
    if not parts:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(f'({text})' for text, _ in parts)}", [value for _, values in parts for value in values]
        )
        return list(cursor.fetchone() or ())


def _ids(parts: list[Sql]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ".join(f"({text})" for text, _ in parts), [value for _, values in parts for value in values]
        )
        return [row[0] for row in cursor.fetchall()]
