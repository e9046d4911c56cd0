"""Metrics of limits."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from durableagents.contrib.limits.models import Limit


def read_metrics() -> Iterator[Metric]:
    """Yield the number of open breakers. Raises DatabaseError."""
    is_open = Limit.objects.filter(breaker=Limit.Breaker.OPEN)
    yield GaugeMetricFamily("durableagents_breakers_open", "Open circuit breakers.", value=is_open.count())
