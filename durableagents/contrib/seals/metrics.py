"""Metrics of seals and witnesses."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from prometheus_client.core import GaugeMetricFamily, Metric

from durableagents.contrib.seals.models import Seal
from durableagents.contrib.seals.witnesses import status_of
from ledger.clock import database_now


def read_metrics() -> Iterator[Metric]:
    """Yield the age of the last seal, and of the oldest seal that each witness lacks. Raises DatabaseError."""
    now = database_now()
    last = Seal.objects.order_by("-number").values_list("at", flat=True).first()
    age = GaugeMetricFamily(
        "durableagents_seal_age_seconds", "Age of the last seal; seals are made while runs progress."
    )
    if last is not None:
        age.add_metric([], max((now - last).total_seconds(), 0.0))
    lag = GaugeMetricFamily(
        "durableagents_witness_lag_seconds", "Age of the oldest seal that a witness has not stored.", labels=["witness"]
    )
    for witness in settings.DURABLEAGENTS.seal_witnesses:
        since = status_of(witness).waiting_since
        lag.add_metric([witness.name], 0.0 if since is None else max((now - since).total_seconds(), 0.0))
    yield from (age, lag)
