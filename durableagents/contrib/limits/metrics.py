"""Metrics of limits and shared budgets."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection
from prometheus_client.core import GaugeMetricFamily, Metric

_READ = """
    SELECT (SELECT count(*) FROM runs_limit WHERE breaker = 'open'),
           (SELECT coalesce(max((used + reserved)::float / greatest(most, 1)), 0) FROM runs_poolmeter
            WHERE is_on AND ends_at > statement_timestamp())"""


def read_metrics() -> Iterator[Metric]:
    """Yield the number of open breakers and the use of shared budgets. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(_READ)
        open_breakers, used_ratio = cursor.fetchone() or (0, 0.0)
    yield GaugeMetricFamily("durableagents_breakers_open", "Open circuit breakers.", value=open_breakers)
    yield GaugeMetricFamily(
        "durableagents_shared_budget_used_ratio",
        "Largest used and reserved share of a shared budget that is in force.",
        value=used_ratio,
    )
