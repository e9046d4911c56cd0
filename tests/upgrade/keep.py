"""How the journals in `tests/fixtures/journals` are kept: what an older commit's code put on record, brought by today's
migrations, and exported by today's `checkpoints export`.

    KEEP_TO=tests/fixtures/journals .venv/bin/python -m pytest tests/upgrade/keep.py

A folder that is there already is left alone: what was kept once never changes, or it would stand for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runs.queries.recordings.folder import Wish, export
from tests.upgrade.places import DUMPS, database, django_on
from tests.upgrade.test_upgrade import _django_db_marker, migrate, of_then, unblocked  # noqa: F401 - fixtures


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.name.split(".")[0])
def test_keep(postgres: Mapping[str, str], dump: Path, of_then: None) -> None:  # noqa: F811
    target = Path(os.environ["KEEP_TO"]) / dump.name.split(".")[0]
    if target.exists():
        return
    with database(postgres, dump) as urls:
        migrate(urls["owner"])
        with django_on(urls["runtime"]):
            done = export(target, Wish(1000, datetime(2000, 1, 1, tzinfo=UTC), payloads="full"))
    assert done.files and done.left_out == [], done.left_out
