"""Encodes spans, and sends them to a collector with OTLP over HTTP."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.resources import Resource

from durableagents.contrib.tracing import spans
from durableagents.contrib.tracing.spans import Span
from ledger.observers import Answered

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
# Limit for spans of requests, which are sent every second. Beyond it, new spans replace the oldest.
MAX_QUEUED = 8192
PAUSE_SECONDS = 1.0
EXIT_SECONDS = 2.0
# Responses after which the batch is not sent again, because the collector would refuse it again. Responses to a wrong
# address or key are not included, because those can be corrected.
_REFUSED = (400, 413, 415, 422)
_KINDS = {
    "internal": SpanMessage.SPAN_KIND_INTERNAL,
    "server": SpanMessage.SPAN_KIND_SERVER,
    "client": SpanMessage.SPAN_KIND_CLIENT,
}
_SAMPLED = 1


class Outcome(Enum):
    TAKEN = auto()
    REFUSED = auto()  # the collector would refuse the batch again
    AWAY = auto()


class OTLPSender(OTLPSpanExporter):
    """The library's exporter, used for address, headers, TLS and retries.

    Its own spans and encoder take 58 µs per span. Building the same messages from our spans takes a quarter of that."""

    def __init__(self, endpoint: str | None) -> None:
        """`endpoint` is the base address of the collector; if None, the OTEL_* variables determine it."""
        address = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
        super().__init__(endpoint=address, timeout=TIMEOUT_SECONDS)
        self._resource = _resource()
        self._is_away = False

    def send(self, sent: Sequence[Span]) -> Outcome:
        """Send the spans, with retries until the timeout.

        Log when the collector becomes unreachable and when it is back."""
        result = self._client.export(encoded(merged(sent), self._resource).SerializeToString())
        reason = result.reason or result.error or "no answer"
        if not result.success and result.status_code in _REFUSED:
            log.error("tracing: the collector refused %s spans (%s %s)", len(sent), result.status_code, reason)
            return Outcome.REFUSED
        if result.success is self._is_away:
            self._is_away = not result.success
            told = (
                f"does not accept spans ({reason}); runs continue without tracing"
                if self._is_away
                else "takes spans again"
            )
            log.warning("tracing: the collector %s", told)
        return Outcome.TAKEN if result.success else Outcome.AWAY


class Requests:
    """Sends the spans of requests that this process has answered, in a thread that starts with the first one."""

    def __init__(self, endpoint: str | None, ratio: float) -> None:
        self._endpoint, self._ratio = endpoint, ratio
        self._queue: deque[Span] = deque(maxlen=MAX_QUEUED)
        self._has_spans = threading.Event()
        self._is_leaving = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def answered(self, answered: Answered) -> None:
        """Queue the span of a request without blocking."""
        if not spans.is_sampled(answered.request.trace_id, self._ratio):
            return
        self._queue.append(spans.of_request(answered))
        self._has_spans.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
                self._thread.start()
                atexit.register(self._leave)

    def _run(self) -> None:
        sender, is_last = OTLPSender(self._endpoint), False
        while not is_last:
            self._has_spans.wait()
            is_last = self._is_leaving.wait(PAUSE_SECONDS)
            self._has_spans.clear()
            if taken := [self._queue.popleft() for _ in range(len(self._queue))]:
                sender.send(taken)

    def _leave(self) -> None:
        """Send the queued spans when the process exits, for at most `EXIT_SECONDS`."""
        self._is_leaving.set()
        self._has_spans.set()
        if self._thread is not None:
            self._thread.join(EXIT_SECONDS)


def merged(sent: Sequence[Span]) -> Sequence[Span]:
    """Return the spans, merging each beginning with its end if both are among them. The end's span is modified."""
    begun: dict[str, Span] = {}
    for span in sent:
        if span.is_end and (begin := begun.get(span.parent)) is not None:
            span.id, span.parent, span.start, span.is_end = begin.id, begin.parent, begin.start, False
            span.attributes = begin.attributes | span.attributes
        begun[span.id] = span
    return [*begun.values()]


def encoded(sent: Sequence[Span], resource: Sequence[KeyValue]) -> ExportTraceServiceRequest:
    """Return the spans as a message for the collector.

    Spans that can't be encoded because their event is damaged are logged and left out."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(resource)
    scope = resource_spans.scope_spans.add()
    scope.scope.name = "durableagents"
    for span in sent:
        try:
            scope.spans.append(_message(span))
        except (ValueError, TypeError) as error:
            log.warning("tracing: span %s of trace %.40s is left out: %s", span.id, span.trace_id, error)
    return request


def _message(span: Span) -> SpanMessage:
    out = SpanMessage(
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
    return out


def _fill(attributes: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        kept = attributes.add(key=key).value
        if isinstance(value, int):
            kept.int_value = value
        else:
            kept.string_value = str(value)


def _resource() -> Sequence[KeyValue]:
    known = dict(Resource.create({"host.name": socket.gethostname(), "process.pid": os.getpid()}).attributes)
    if str(known.get("service.name", "")).startswith("unknown_service"):  # OTEL_SERVICE_NAME isn't set
        known["service.name"] = "durableagents"
    _fill(made := ResourceMessage().attributes, known)
    return made
