"""Gathers increments in memory, and adds them to the counter rows in one statement."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict

from django.db import connection

from durableagents.contrib.metrics.catalogue import FAMILIES, SUM, Labels

# Label values are names from code and settings. Beyond this many label values of one metric, new ones are counted as
# OTHER.
MAX_LABELS = 500
OTHER = "other"
# Rows are updated in the order of their key, so that concurrent writers can't deadlock.
_ADD = """
    INSERT INTO metrics_counter AS c (name, labels, part, value)
    SELECT name, labels, part, value FROM unnest(%s::text[], %s::text[], %s::smallint[], %s::float[])
        AS added (name, labels, part, value) ORDER BY name, labels, part
    ON CONFLICT (name, labels, part) DO UPDATE SET value = c.value + excluded.value"""


class Increments:
    """Increments that are not yet added to the counters."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Labels, int], float] = defaultdict(float)

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Add `by` to a counter."""
        self._values[name, labels, 0] += by

    def observe(self, name: str, *labels: str, seconds: float) -> None:
        """Add a duration to its bucket of a histogram."""
        self._values[name, labels, bisect_left(FAMILIES[name].buckets, seconds)] += 1.0
        self._values[name, labels, SUM] += max(seconds, 0.0)

    def add_part(self, name: str, part: int, by: float) -> None:
        """Add to one part of a histogram without labels."""
        self._values[name, (), part] += by

    def store(self) -> None:
        """Add all increments to the counters, in the caller's transaction. Raises DatabaseError."""
        rows: dict[tuple[str, str, int], float] = defaultdict(float)
        known: dict[str, set[str]] = {}
        for (name, labels, part), value in self._values.items():
            if labels and name not in known:
                known[name] = _known_labels(name)
            stored = json.dumps([_short(each) for each in labels])
            if labels and stored not in known[name]:
                if len(known[name]) >= MAX_LABELS:
                    stored = json.dumps([OTHER] * len(labels))
                known[name].add(stored)
            rows[name, stored, part] += value
        if rows:
            names, labels_of, parts = zip(*rows, strict=True)
            with connection.cursor() as cursor:
                cursor.execute(_ADD, [list(names), list(labels_of), list(parts), list(rows.values())])


def _known_labels(name: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT labels FROM metrics_counter WHERE name = %s", [name])
        return {labels for (labels,) in cursor.fetchall()}


def _short(value: str) -> str:
    return value[:200]
