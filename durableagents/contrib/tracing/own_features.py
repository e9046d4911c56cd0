"""The feature of this app: an observer that makes spans, and a flush as a worker stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings

from durableagents.contrib.tracing.export import Exporter
from durableagents.contrib.tracing.observer import Tracer
from runs.features import Feature

FLUSH_SECONDS = 2.0


def feature() -> Feature:
    """Return the feature, with the collector of the settings."""
    exporter = Exporter(settings.DURABLEAGENTS.otlp_endpoint)

    @contextmanager
    def flushing(count_commits: Callable[[], int]) -> Iterator[None]:
        try:
            yield
        finally:
            exporter.flush(FLUSH_SECONDS)

    tracer = Tracer(exporter.put, settings.DURABLEAGENTS.trace_ratio)
    return Feature(name="tracing", observers=tracer.observers(), while_driving=(flushing,))
