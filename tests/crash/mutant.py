"""A seeded bug: what it changes, and what has to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`before` occurs once in `path`; with `after` in its place something of `check` must fail: tests, or light
    schedules."""

    name: str
    path: str
    before: str
    after: str
    check: str

    @property
    def is_sql(self) -> bool:
        return self.path.endswith(".sql")


LIGHT = "light"
