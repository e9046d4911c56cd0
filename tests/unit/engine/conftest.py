"""Engine tests need no database: an in-memory journal, and tools on the test's own `Outside`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.world import Outside, Toolbox, only_for_now


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
