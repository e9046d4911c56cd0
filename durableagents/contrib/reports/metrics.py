"""Metrics of the detector of duplicate effects."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Q
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from durableagents.contrib.reports.models import Closure, DetectorPlace, Finding
from ledger.clock import database_now


def read_metrics() -> Iterator[Metric]:
    """Yield the numbers of findings by kind, of open and of confirmed ones, and the age of the detector's last pass.

    Raises DatabaseError."""
    found = CounterMetricFamily(
        "durableagents_duplicate_findings", "Facts that suggest a duplicate effect.", labels=["kind"]
    )
    still_open = GaugeMetricFamily("durableagents_duplicate_findings_open", "Findings that nobody has closed.")
    confirmed = CounterMetricFamily("durableagents_duplicates_confirmed", "Findings closed as a duplicate effect.")
    counted = dict(Finding.objects.values_list("kind").annotate(n=Count("id")))
    for kind in Finding.Kind.values:
        found.add_metric([kind], counted.get(kind, 0))
    closed = Closure.objects.aggregate(n=Count("pk"), twice=Count("pk", filter=Q(verdict=Closure.Verdict.DUPLICATE)))
    still_open.add_metric([], sum(counted.values()) - closed["n"])
    confirmed.add_metric([], closed["twice"])
    age = GaugeMetricFamily("durableagents_detector_age_seconds", "Age of the detector's last pass over the record.")
    checked_at = DetectorPlace.objects.filter(pk=1).values_list("checked_at", flat=True).first()
    if checked_at is not None:
        age.add_metric([], max((database_now() - checked_at).total_seconds(), 0.0))
    yield from (found, still_open, confirmed, age)
