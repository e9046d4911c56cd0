from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_link_left_open() -> Iterator[None]:
    """Heartbeats keep a connection per thread; the test database can't be dropped while one is open."""
    yield
    from runs import fleet

    fleet.hang_up()
