"""A whole installation (`manage.py up`) on its own data and ports, for tests that break it."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from durableagents.dev.embedded_layout import layout
from tests.conftest import CHECKOUT, free_ports, plain_env
from tests.waiting import eventually

PARTS = {
    "web": "manage.py web",
    "sandbox": "durableagents.demo.sandbox",
    "supervisor": "worker",
    "postgres": "postgres",
}
_DUE = """
from django.utils import timezone
from durableagents.contrib.schedules.models import Schedule
schedule = Schedule.objects.get(pk="{id}")
schedule.next_at = timezone.now().replace(second=0, microsecond=0)
schedule.save()
"""


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert that a command ended with exit code 2 and one line that contains these words."""
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


class Installation:
    options: Sequence[str] = ()  # of `up`

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port, self.sandbox_port, self.smtp_port = free_ports(3)
        self.process: subprocess.Popen[str] | None = None
        self.family: dict[int, psutil.Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clean()

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            **plain_env(self.data),
            "PORT": str(self.port),
            "SANDBOX_PORT": str(self.sandbox_port),
            "SANDBOX_SMTP_PORT": str(self.smtp_port),
            "DURABLEAGENTS_WORKERS": "1",
            **extra,
        }

    def up(self, **extra: str) -> subprocess.Popen[str]:
        """Start it without waiting. In its own session: signals reach `up` alone."""
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", *self.options],
            cwd=CHECKOUT,
            env=self.environment(**extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

    def shell(self, code: str) -> str:
        """Run code of the application, which has the key, and return what it printed."""
        made = subprocess.run(
            [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
            cwd=CHECKOUT,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return made.stdout

    def make_due(self, schedule_id: str) -> None:
        """Set a schedule's planned time to the beginning of this minute."""
        self.shell(_DUE.format(id=schedule_id))

    def up_and_ready(self, **extra: str) -> Self:
        self.up(**extra)
        eventually(self.is_ready, "ready", 240)
        self.remember()
        return self

    def run_to_its_end(self, *options: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", "up", *options],
            cwd=CHECKOUT,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=150,
        )

    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"up ended with {self.process.returncode}: {self.output()}")
        return get(self.port, "/readyz") == 200

    def part(self, name: str) -> psutil.Process | None:
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children():
            try:
                if PARTS[name] in " ".join(child.cmdline()[:4]) and child.status() != "zombie":
                    return child
            except psutil.Error:
                continue
        return None

    def remember(self) -> None:
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children(recursive=True):
            self.family[child.pid] = child

    def left(self) -> list[psutil.Process]:
        return [each for each in self.family.values() if _is_alive(each)]

    def stop(self, signum: int = signal.SIGINT) -> tuple[int, float]:
        """Signal `up` and wait; return exit code and seconds."""
        assert self.process is not None
        self.remember()
        began = time.monotonic()
        self.process.send_signal(signum)
        code = self.process.wait(40)
        return code, time.monotonic() - began

    def demo(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "demo.json").read_text())
        return found

    def output(self) -> str:
        assert self.process is not None and self.process.stdout is not None
        return self.process.stdout.read()

    def clean(self) -> None:
        """End what is left and remove what it made; faster than `manage.py clean_data`."""
        if self.process is not None:
            if self.process.poll() is None:
                with suppress(psutil.NoSuchProcess):
                    self.remember()
                self.process.kill()
            self.process.wait(10)
            if self.process.stdout:
                self.process.stdout.close()
        psutil.wait_procs(self.left(), timeout=15)
        for each in self.left():
            each.kill()
        if self.data.exists():
            place = layout(self.data)
            cluster = place.pgdata.parent if place.account else place.pgdata
            for path in (place.socket_dir, cluster, self.data):
                shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False  # it ended between the two calls


def get(port: int, path: str) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def cmdline(pid: int) -> str:
    """Return what `ps` shows of a process; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
