"""Sends spans to a collector by OTLP over HTTP, from a thread of its own behind a bounded queue."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.resources import Resource

from durableagents.contrib.tracing.spans import Span

log = logging.getLogger(__name__)

MAX_QUEUED = 8192
MAX_BATCH = 512
TIMEOUT_SECONDS = 5.0
EXIT_SECONDS = 2.0
# Time for a short step to end, so that it is one span. A longer one's attempt is sent: its process may be killed.
MERGE_SECONDS = 0.05
# After a turn the thread rests this many times as long as it worked, at most so many seconds.
REST = 50.0
MAX_REST_SECONDS = 1.0

_KINDS = {
    "internal": SpanMessage.SPAN_KIND_INTERNAL,
    "server": SpanMessage.SPAN_KIND_SERVER,
    "client": SpanMessage.SPAN_KIND_CLIENT,
}
_SAMPLED = 1


class Exporter:
    """The queue and thread of one process. The thread starts with the first span, so that a fork doesn't need it."""

    def __init__(self, endpoint: str | None = None, *, max_queued: int = MAX_QUEUED) -> None:
        self._address = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None  # None: as OTEL_* variables say
        self._max_queued = max_queued
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._queue: deque[Span] = deque()
        self._has_spans = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.exported = self.dropped = 0
        self._is_away = self._is_leaving = self._is_sending = False

    def put(self, span: Span) -> None:
        """Queue a span, or drop and count it if the queue is full. Never blocks."""
        if len(self._queue) >= self._max_queued:
            self.dropped += 1
            return
        self._queue.append(span)
        if not self._has_spans.is_set():
            self._has_spans.set()
        if self._thread is None:
            self._start()

    def flush(self, seconds: float) -> bool:
        """Wait until all spans are sent, at most for `seconds`. Return whether they are, and log those that are not."""
        is_sent = self._drain(seconds)
        if self.dropped or not is_sent:
            log.warning("tracing: %s spans were dropped, %s are not sent", self.dropped, len(self._queue))
        return is_sent

    def _drain(self, seconds: float) -> bool:
        self._is_leaving, until = True, time.monotonic() + seconds
        self._has_spans.set()
        while not (is_sent := not self._queue and not self._is_sending) and time.monotonic() < until:
            time.sleep(0.01)
        self._is_leaving = False
        return is_sent

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
                self._thread.start()
                atexit.register(self._drain, EXIT_SECONDS)

    # --- the thread ---

    def _run(self) -> None:
        sender, resource = OTLPSender(self._address), _resource()
        while True:
            self._has_spans.wait()
            self._rest(MERGE_SECONDS)
            self._has_spans.clear()
            began = time.thread_time()
            self._is_sending = True
            while self._queue:
                self._send(sender, resource)
            self._is_sending = False
            self._rest(min(MAX_REST_SECONDS, REST * (time.thread_time() - began)))

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._is_leaving and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _send(self, sender: OTLPSender, resource: Sequence[KeyValue]) -> None:
        taken = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
        is_sent = sender.send(encoded(merged(taken), resource))
        if is_sent:
            self.exported += len(taken)
        else:
            self.dropped += len(taken)
        if is_sent is self._is_away:
            self._is_away = not is_sent
            told = "takes spans again" if is_sent else "does not take spans; runs go on without"
            log.warning("tracing: the collector %s; %s spans were dropped", told, self.dropped)


class OTLPSender(OTLPSpanExporter):
    """The library's exporter, for address, headers, TLS and repeats. Its own spans and encoder cost 75 µs a span, a
    tenth of a step; the same messages filled from ours a quarter of that."""

    def __init__(self, address: str | None) -> None:
        super().__init__(endpoint=address, timeout=TIMEOUT_SECONDS)

    def send(self, request: ExportTraceServiceRequest) -> bool:
        """Send, with repeats within the timeout. Return whether the collector took it."""
        return bool(self._client.export(request.SerializeToString()).success)


def merged(spans: Sequence[Span]) -> Sequence[Span]:
    """Return the spans, with each beginning and its end in one where both are among them."""
    begun: dict[str, Span] = {}
    for span in spans:
        if span.is_end and (begin := begun.get(span.parent)) is not None:
            told = begin.attributes | span.attributes
            begin = replace(span, id=begin.id, parent=begin.parent, start=begin.start, attributes=told, is_end=False)
            begun[begin.id] = begin
        else:
            begun[span.id] = span
    return [*begun.values()]


def encoded(spans: Sequence[Span], resource: Sequence[KeyValue]) -> ExportTraceServiceRequest:
    """Return the message for the collector."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(resource)
    scope = resource_spans.scope_spans.add()
    scope.scope.name = "durableagents"
    for span in spans:
        out = scope.spans.add(
            name=span.name,
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.id),
            parent_span_id=bytes.fromhex(span.parent),
            flags=_SAMPLED,
            kind=_KINDS[span.kind],
            start_time_unix_nano=span.start,
            end_time_unix_nano=span.end,
        )
        _fill(out.attributes, span.attributes)
        if span.error:
            out.status.code, out.status.message = Status.STATUS_CODE_ERROR, span.error
            out.attributes.add(key="error.type").value.string_value = span.error
    return request


def _fill(attributes: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        kept = attributes.add(key=key).value
        if isinstance(value, int):
            kept.int_value = value
        else:
            kept.string_value = str(value)


def _resource() -> Sequence[KeyValue]:
    known = dict(Resource.create({"host.name": socket.gethostname(), "process.pid": os.getpid()}).attributes)
    if str(known.get("service.name", "")).startswith("unknown_service"):  # OTEL_SERVICE_NAME doesn't say
        known["service.name"] = "durableagents"
    _fill(made := ResourceMessage().attributes, known)
    return made
