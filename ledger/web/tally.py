"""Counts on pages, up to the limit shown, in one statement per request that also reads the navigation's counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import QuerySet

BADGE_TO = 99  # a page shows at most "99+", so counting reads at most a hundred entries


@dataclass(frozen=True, slots=True)
class Counted:
    """Queries whose rows are counted, up to one more than `to`.

    Each item of `arms` is a query, limited to that number of rows, and its parameters.
    """

    to: int
    arms: Sequence[tuple[str, Sequence[Any]]]

    @classmethod
    def of(cls, rows: QuerySet[Any], *, to: int) -> Counted:
        """Return the count of a query's rows."""
        statement, values = rows.values_list("pk")[: to + 1].query.sql_with_params()
        return cls(to, [(f"SELECT 1 FROM ({statement}) AS these", values)])

    @property
    def expression(self) -> tuple[str, list[Any]]:
        inner = " UNION ALL ".join(f"({statement})" for statement, _ in self.arms)
        values = [value for _, given in self.arms for value in given]
        return f"(SELECT count(*) FROM (SELECT 1 FROM ({inner}) AS arms LIMIT %s) AS counted)", [*values, self.to + 1]


# Counts of the navigation by name, for these roles; None if there is nothing to count.
Badge = Callable[[frozenset[str]], Counted | None]
_badges: dict[str, Badge] = {}


def badge(name: str) -> Callable[[Badge], Badge]:
    def known(count: Badge) -> Badge:
        _badges[name] = count
        return count

    return known


class Tally:
    """The counts of one page, for these roles."""

    def __init__(self, held: frozenset[str]) -> None:
        self._held = held
        self._known: dict[str, int] = {}
        self._has_badges = False

    def read(self, wanted: Mapping[str, Counted | None]) -> dict[str, int]:
        """Read the counts that aren't known yet, and the navigation's counts in the same statement."""
        to_count: dict[str, Counted | None] = {name: what for name, what in wanted.items() if name not in self._known}
        if not self._has_badges:
            to_count |= {f"badge {name}": count(self._held) for name, count in _badges.items()}
            self._has_badges = True
        self._known |= _counted(to_count)
        return {name: self._known[name] for name in wanted}

    def badge(self, name: str) -> int:
        self.read({})
        return self._known[f"badge {name}"]


def _counted(to_count: Mapping[str, Counted | None]) -> dict[str, int]:
    counts = dict.fromkeys(to_count, 0)
    parts = [(name, *what.expression) for name, what in to_count.items() if what is not None and what.arms]
    if parts:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {', '.join(part for _, part, _ in parts)}", [value for *_, values in parts for value in values]
            )
            counts |= dict(zip((name for name, *_ in parts), cursor.fetchone(), strict=True))
    return counts
