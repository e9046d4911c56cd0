"""One installation for all crash tests: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.crash.stack import Stack


@pytest.fixture(scope="package")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("crash"), workers=3)
    try:
        yield stack.start()
    finally:
        stack.end()


@pytest.fixture
def stack(installation: Stack) -> Iterator[Stack]:
    installation.disarm()
    installation.all_workers(2)
    yield installation
    installation.disarm()
