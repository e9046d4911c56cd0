"""The benchmarks' database: a migrated embedded PostgreSQL in a temporary folder, used as the runtime role."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

CHECKOUT = Path(__file__).resolve().parents[3]


_superuser: list[str] = []


def superuser() -> str:
    """Return the superuser's address of the running server, for filling it past its triggers."""
    return _superuser[-1]


@contextmanager
def place() -> Iterator[Path]:
    data = tempfile.mkdtemp(prefix="durableagents-bench-")
    for name in [name for name in os.environ if name.startswith(("DATABASE", "DURABLEAGENTS"))]:
        del os.environ[name]
    os.environ.update(
        DURABLEAGENTS_DATA=data,
        DJANGO_SETTINGS_MODULE="durableagents.settings",
        PYTHONPATH=str(CHECKOUT),
        DURABLEAGENTS_AGENTS="tests.system.bench.agents",
    )
    from durableagents.dev.embedded import Server

    server = Server(Path(data))
    server.prepare()
    server.start()
    _superuser.append(server.url("admin"))
    try:
        owner = {**os.environ, "DURABLEAGENTS_DB_ROLE": "owner"}
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=CHECKOUT, env=owner, check=True)
        import django

        django.setup()
        yield Path(data)
    finally:
        server.stop(patience_seconds=2)
        server.close()
        shutil.rmtree(server.layout.socket_dir, ignore_errors=True)
        if server.layout.account:
            shutil.rmtree(server.layout.pgdata.parent, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)


def server_cpu_seconds() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name() == "postgres":
                used = process.cpu_times()
                total += used.user + used.system
        except psutil.Error:
            continue
    return total
