"""The feature of this app: a process that exports recorded events, and the spans of requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.conf import settings

from durableagents.contrib.tracing.export import Requests
from durableagents.contrib.tracing.spans import is_sampled
from ledger import context
from ledger.observers import Answered
from runs.features import Feature

_ORIGIN = "INSERT INTO tracing_origin (run_id, span_id) VALUES (%s, %s)"


def feature() -> Feature:
    """Return the feature, with the collector in the settings."""
    requests = Requests(settings.DURABLEAGENTS.otlp_endpoint, settings.DURABLEAGENTS.trace_ratio)
    return Feature(
        name="tracing",
        observers={Answered: requests.answered},
        on_birth=(origin,),
        helpers=("export_traces",),
    )


@contextmanager
def origin(run_id: UUID) -> Iterator[list[tuple[str, list[Any]]]]:
    """Yield a list with the statement that stores which request starts this run; it is empty outside requests."""
    request = context.request.get()
    if request is None or not request.span_id or not is_sampled(request.trace_id, settings.DURABLEAGENTS.trace_ratio):
        yield []
    else:
        yield [(_ORIGIN, [run_id, request.span_id])]
