"""Tests on the real database. They commit, because several connections take part; fixtures clean up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from runs.connections import dsn
from runs.journal import committer
from tests import kept
from tests.conftest import database_urls
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Mood, Stage
from tests.integration.runs.wire import LossyWire
from tests.kept import clean
from tests.unit.engine.conftest import _agents_of_this_test, outside, tools
from tests.world import Toolbox

__all__ = ["_agents_of_this_test", "outside", "tools"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, since pytest-django creates a database only if some test has the mark."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.django_db)


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Skip pytest-django's flush, which takes ten times as long as the stage's. Use the fixture `db` for a rollback."""


@contextmanager
def new_stage(blocker: Any, postgres: Mapping[str, str]) -> Iterator[Stage]:
    with blocker.unblock():
        stage = Stage()
        try:
            yield stage
        finally:
            stage.close()
            kept.settle()
            clean(database_urls(postgres)["admin"])


@pytest.fixture
def stage(django_db_setup: None, django_db_blocker: Any, postgres: Mapping[str, str]) -> Iterator[Stage]:
    with new_stage(django_db_blocker, postgres) as stage:
        yield stage


@pytest.fixture
def situations(stage: Stage, tools: Toolbox) -> Situations:
    return Situations(stage, tools)


@pytest.fixture
def mood() -> Mood:
    return Mood()


@pytest.fixture
def wire(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyWire]:
    """A proxy between the stage's workers and the database; the test connects directly."""
    folder: Path = tmp_path_factory.mktemp("w")
    wire = LossyWire(folder, dsn(name="durableagents lossy"))

    async def connect() -> Any:
        pool = AsyncConnectionPool(
            wire.dsn, min_size=1, max_size=1, open=False, timeout=20, kwargs={"autocommit": True}
        )
        await pool.open(wait=True)
        return pool

    stage.pool = stage.wait(connect())
    yield wire
    wire.close()


@pytest.fixture
def one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put everything ready in one turn into one batch, so that neighbours' effects on each other show."""
    monkeypatch.setattr(committer, "SHARES", 1)
