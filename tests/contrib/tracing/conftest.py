"""A collector on this host, and an exporter that sends to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from durableagents.contrib.tracing.export import OTLPSender, Outcome
from durableagents.contrib.tracing.exporter import MAX_WAIT, Exporter
from ledger.clock import database_now
from runs.connections import dsn
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, stage, tools

__all__ = ["_agents_of_this_test", "_django_db_marker", "outside", "stage", "tools"]


class Collector:
    """Takes spans by OTLP over HTTP with `status`; while `answers` is clear, it takes requests and answers none."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.answers.wait(30)
                if collector.status == 200:
                    collector.bodies.append(body)
                self.send_response(collector.status)
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

    def names(self) -> list[str]:
        return [span["name"] for span in self.spans()]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


class Exporters:
    """Exporters of this test, each with a connection of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.links: list[psycopg.Connection[Any]] = []

    def new(self) -> Exporter:
        """Return an exporter that goes on where the last one saved that it was."""
        self.links.append(psycopg.connect(dsn(), autocommit=True))
        return Exporter(self.links[-1], OTLPSender(self._address).send)


@pytest.fixture
def exporters(collector: Collector) -> Iterator[Exporters]:
    made = Exporters(collector.address)
    yield made
    for link in made.links:
        link.close()


@pytest.fixture
def exporter(exporters: Exporters) -> Exporter:
    """Export what is written from here on."""
    return exporters.new()


def export_all(exporter: Exporter, seconds: float = MAX_WAIT.total_seconds() + 10) -> None:
    """Export what was committed before. Transactions in other databases of the server hold it back up to MAX_WAIT."""
    now = database_now()
    until = time.monotonic() + seconds
    while exporter.position <= now:
        assert time.monotonic() < until, exporter.position
        outcome, is_all = exporter.export()
        assert outcome is not Outcome.AWAY
        time.sleep(0.02 if is_all else 0)
