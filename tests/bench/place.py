"""Where the benchmarks run: an embedded PostgreSQL in a temporary folder, migrated, connected to as the runtime role."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@contextmanager
def place() -> Iterator[None]:
    """Start the server, migrate, set Django up; stop and remove everything afterwards."""
    data = tempfile.mkdtemp(prefix="durableagents-bench-")
    os.environ.update(
        DURABLEAGENTS_DATA=data, DJANGO_SETTINGS_MODULE="durableagents.settings", PYTHONPATH=str(CHECKOUT)
    )
    for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "DURABLEAGENTS_AGENTS", "DURABLEAGENTS_MODEL"):
        os.environ.pop(name, None)
    from durableagents.embedded import Server

    server = Server(Path(data))
    server.prepare()
    server.start()
    try:
        owner = {**os.environ, "DURABLEAGENTS_DB_ROLE": "owner"}
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=CHECKOUT, env=owner, check=True)
        import django

        django.setup()
        yield
    finally:
        server.stop(patience_seconds=2)
        server.close()
        shutil.rmtree(server.layout.socket_dir, ignore_errors=True)
        if server.layout.account:
            shutil.rmtree(server.layout.pgdata.parent, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)
