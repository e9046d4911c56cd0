"""Stories on the real database. Everything is committed, for several connections take part, and cleaned up after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.db import connection

from tests.conftest import database_urls
from tests.runs.stage import Stage, clean
from tests.world import Outside, Toolbox, only_for_now


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """The mark `django_db` only says that a database is needed: the stage commits to it, and empties it in a tenth of the
    time that pytest-django's flush takes. Tests that want a rolled-back transaction use the fixture `db`."""


@pytest.fixture(autouse=True)
def _agents_of_this_test() -> Iterator[None]:
    with only_for_now():
        yield


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def tools(outside: Outside) -> Toolbox:
    return Toolbox(outside)


@pytest.fixture
def stage(django_db_setup: None, django_db_blocker: Any, postgres: Mapping[str, str]) -> Iterator[Stage]:
    with django_db_blocker.unblock():
        stage = Stage()
        try:
            yield stage
        finally:
            stage.close()
            connection.close()
            clean(database_urls(postgres)["admin"])
