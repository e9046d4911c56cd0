"""Makes spans of what this process wrote, drove and answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from durableagents.contrib.tracing import spans
from durableagents.contrib.tracing.spans import Span, Starts, Writing
from ledger import context
from ledger import events as e
from ledger.observers import Answered, Driven, Observer, Written
from runs.models import Run, Wait


class Tracer:
    """Observer of this process. It hands spans to `export`, which must not block; of traces, the share `ratio`."""

    def __init__(self, export: Callable[[Span], None], ratio: float = 1.0) -> None:
        self._export, self._starts = export, Starts()
        self._bound = round(ratio * (1 << 64))

    def observers(self) -> Mapping[type[Any], Observer]:
        """Return its observers, as a feature registers them."""
        return {Written: self.wrote, Driven: self.drove, Answered: self.answered}

    def is_sampled(self, trace_id: str) -> bool:
        """Return whether a trace is exported: the same in every process, as it depends on its id alone."""
        return int(trace_id[16:], 16) < self._bound

    def wrote(self, written: Written) -> None:
        told = [event for event in written.events if type(event) in spans.EXPORTED]
        if not told:
            return
        trace_id, agent = written.trace_id, written.agent
        if not trace_id:
            trace_id, agent = self._looked_up(written.run_id, told)
        if not trace_id or not self.is_sampled(trace_id):
            return
        request = context.request.get()
        parent = request.span_id if request is not None and request.trace_id == trace_id else ""
        for span in Writing(written, trace_id, agent, time.time_ns(), self._starts, parent=parent).spans():
            self._export(span)

    def drove(self, driven: Driven) -> None:
        if self.is_sampled(driven.trace_id):
            self._export(spans.of_drive(driven, time.time_ns(), self._starts))

    def answered(self, answered: Answered) -> None:
        if self.is_sampled(answered.request.trace_id):
            self._export(spans.of_request(answered))

    def _looked_up(self, run_id: str, events: list[e.Event]) -> tuple[str, str]:
        """Return a run's trace and agent for a service, and note when the waits that it resolved were opened."""
        found = Run.objects.filter(pk=UUID(run_id)).values_list("trace_id", "graph_id").first()
        if slots := {event.slot for event in events if type(event) in spans.WAITS}:
            waits = Wait.objects.filter(run_id=UUID(run_id), slot__in=slots)
            for slot, attempt, kind, n, at in waits.values_list("slot", "attempt", "kind", "n", "opened_at"):
                opened = spans.wait_id(run_id, slot, attempt, kind, n)
                self._starts.note(opened, int(at.timestamp() * 1e9))
        return found or ("", "")
