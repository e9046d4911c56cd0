"""Engine stories need no database: a journal in memory, tools on an `Outside` of the test's own."""

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
