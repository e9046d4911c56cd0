"""A collector on this host, and a tracer of this process that sends to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from durableagents.contrib.tracing.export import Exporter
from durableagents.contrib.tracing.observer import Tracer
from ledger import observers
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "stage", "tools"]


class Collector:
    """Takes spans by OTLP over HTTP; while `answers` is clear, it takes requests and answers none."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.answers = threading.Event()
        self.answers.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.answers.wait(30)
                collector.bodies.append(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[dict[str, Any]]:
        """Return the spans so far, with ids in hex and attributes by name."""
        found = []
        for body in list(self.bodies):
            request = ExportTraceServiceRequest.FromString(body)
            for span in (s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans):
                fields = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
                ids = {"id": span.span_id.hex(), "trace": span.trace_id.hex(), "parent": span.parent_span_id.hex()}
                times = {"start": span.start_time_unix_nano, "end": span.end_time_unix_nano}
                found.append({"name": span.name, "error": span.status.message, **ids, **times, **fields})
        return found

    def waits_for(self, name: str, seconds: float = 10.0) -> dict[str, Any]:
        """Return the first span of this name, once it has come."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := [span for span in self.spans() if span["name"] == name]:
                return found[0]
            time.sleep(0.01)
        raise AssertionError(f"no {name}: {[span['name'] for span in self.spans()]}")


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def exporter(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Exporter:
    """Trace what this process does."""
    made = Exporter(collector.address)
    monkeypatch.setattr(observers, "installed", {k: (hear,) for k, hear in Tracer(made.put).observers().items()})
    return made
