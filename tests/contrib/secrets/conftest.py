from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger import scrubbing
from tests.integration.runs.conftest import _agents_of_this_test, outside, stage, tools

__all__ = ["_agents_of_this_test", "outside", "stage", "tools"]


@pytest.fixture(autouse=True)
def _own_scrubber() -> Iterator[None]:
    yield
    scrubbing.use(None)
