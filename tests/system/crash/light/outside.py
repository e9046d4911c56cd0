"""A lane's outside world: its own sandbox process and the database's postmaster, which both may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from durableagents.server import child_processes
from tests.conftest import CHECKOUT, free_ports

START_SECONDS = 60.0


class Outside:
    """The sandbox and its oracle. Requests are repeated until answered, because it may just have been killed."""

    def __init__(self, folder: Path, postmaster: Path) -> None:
        self._folder, self._postmaster = folder, postmaster
        self.port, self.smtp_port = free_ports(2)
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10, trust_env=False)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {"SANDBOX_PORT": str(self.port), "SANDBOX_SMTP_PORT": str(self.smtp_port)}

    def start(self) -> None:
        with (self._folder / "sandbox.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "durableagents.demo.sandbox"],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **self.environment, "DURABLEAGENTS_DATA": str(self._folder)},
                preexec_fn=child_processes.die_with_parent(signal.SIGKILL),
            )
        self._ask(lambda: self._client.get("/healthz"))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._client.close()

    def kill_sandbox(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.start()
        self.no_faults()

    def restart_database(self) -> None:
        """Shut the database down at once without flushing, as in a power cut. The ground restarts it."""
        try:
            os.kill(int(self._postmaster.read_text().split()[0]), signal.SIGQUIT)
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return  # another lane did it just now

    def effects(self, run_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask(lambda: self._client.get("/effects", params={"run_id": run_id})).json()
        return found

    def receipt(self, run_id: str, tool: str) -> dict[str, Any]:
        """Return a person's receipt of a call that happened: the newest of its kind, by its key."""
        if tool != "later":
            return {}
        keys = [
            row["idempotency_key"]
            for row in self.effects(run_id)
            if row["executed"] and row["operation"] == "request_w9"
        ]
        found = self._ask(
            lambda: self._client.get("/api/portal/w9-requests", params={"idempotency_key": keys[-1]})
        ).json()
        return {"request_id": found["results"][0]["request_id"]}

    def faults(self, **entry: Any) -> None:
        self._ask(lambda: self._client.post("/faults", json=entry))

    def no_faults(self) -> None:
        self._ask(lambda: self._client.delete("/faults"))
        self.faults(w9_delay_seconds=0)

    def _ask(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return ask().raise_for_status()
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
