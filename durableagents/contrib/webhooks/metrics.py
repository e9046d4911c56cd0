"""Metrics of webhooks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from durableagents.contrib.webhooks.queries import backlog


def read_metrics() -> Iterator[Metric]:
    """Yield the number of unsent messages and the age of the oldest one. Raises DatabaseError."""
    due = backlog()
    yield GaugeMetricFamily(
        "durableagents_webhook_backlog",
        "Unsent messages of active webhooks, including failed ones that are tried again.",
        value=due.count,
    )
    yield GaugeMetricFamily(
        "durableagents_webhook_oldest_seconds",
        "Age of the oldest of them; 0 if there are none.",
        value=due.oldest_seconds,
    )
