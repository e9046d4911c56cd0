from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import free_ports

from .harness import Receiver, Sandbox


@pytest.fixture
def sandbox(tmp_path: Path, ports: Callable[[int], list[int]]) -> Iterator[Sandbox]:
    own = Sandbox(tmp_path / "data", *ports(2))
    own.start()
    yield own
    own.close()


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def make(*statuses: int) -> Receiver:
        made.append(Receiver(*statuses))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sandbox]:
    own = Sandbox(tmp_path_factory.mktemp("sandbox") / "data", *free_ports(2))
    own.start()
    yield own
    own.close()
