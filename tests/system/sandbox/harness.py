"""A real sandbox process to talk to, kill and restart, and a receiver for its callbacks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx

from tests.waiting import eventually

CHECKOUT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 60

VENDOR = {
    "legal_name": "Nordlicht Antriebe GmbH",
    "country": "DE",
    "tax_id": "DE-812345",
    "contact_email": "billing@nordlicht.example",
    "category": "dock sensors",
}


class Sandbox:
    def __init__(self, data: Path, http_port: int, smtp_port: int) -> None:
        self.data = data
        self.smtp_port = smtp_port
        self.http_port = http_port
        self.url = f"http://127.0.0.1:{http_port}"
        self.process: subprocess.Popen[str] | None = None
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS, trust_env=False)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DURABLEAGENTS_DATA": str(self.data),
            "SANDBOX_PORT": str(self.http_port),
            "SANDBOX_SMTP_PORT": str(self.smtp_port),
        }

    def spawn(self, **changed: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "durableagents.demo.sandbox"],
            cwd=CHECKOUT,
            env=self.environment | changed,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        self.process = self.spawn()
        eventually(self._is_up, "the sandbox to answer")

    def _is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the sandbox ended: {self.process.communicate()[1]}")
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """SIGKILL it: no handler runs, nothing is flushed."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        assert self.process is not None
        self.process.send_signal(number)
        errors = self.process.communicate(timeout=PATIENCE_SECONDS)[1]
        code = self.process.returncode
        self.process = None
        self.client.close()  # connections of the dead process
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS, trust_env=False)
        return code, errors

    def close(self) -> None:
        if self.process is not None:
            self.kill()
        self.client.close()

    def post(self, path: str, body: Any, key: str | None = None, run_id: str | None = None) -> httpx.Response:
        headers = {"Idempotency-Key": key, "X-Run-Id": run_id}
        present = {name: value for name, value in headers.items() if value is not None}
        return self.client.post(path, json=body, headers=present)

    def create_vendor(self, key: str, **changed: Any) -> httpx.Response:
        return self.post("/api/erp/vendors", VENDOR | changed, key)

    def fault(self, **entry: Any) -> None:
        self.client.post("/faults", json=entry).raise_for_status()

    def effects(self, operation: str | None = None) -> list[dict[str, Any]]:
        rows = self.client.get("/effects").raise_for_status().json()
        return [row for row in rows if operation in (None, row["operation"])]

    def executed(self, operation: str | None = None) -> list[dict[str, Any]]:
        return [row for row in self.effects(operation) if row["executed"]]

    def wait_for_rows(self, operation: str, count: int) -> None:
        eventually(lambda: len(self.effects(operation)) >= count, f"{count} rows of {operation}")

    def raw(self, request: bytes) -> bytes:
        """Send raw bytes; return everything until the server closes, b"" for no answer."""
        with socket.create_connection(("127.0.0.1", self.http_port), PATIENCE_SECONDS) as raw:
            raw.sendall(request)
            parts = []
            while part := raw.recv(65536):
                parts.append(part)
            return b"".join(parts)


class Receiver:
    """Takes callbacks: answers the scripted statuses in turn, then always 200."""

    def __init__(self, *statuses: int) -> None:
        self.received: Queue[bytes] = Queue()
        script = deque(statuses)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(script.popleft() if script else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                receiver.received.put(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/api/v1/callbacks/tok"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def next(self) -> dict[str, Any]:
        return dict(json.loads(self.next_bytes()))

    def next_bytes(self) -> bytes:
        return self.received.get(timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
