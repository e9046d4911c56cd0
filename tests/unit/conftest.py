"""Unit tests use no database: a test that requests one fails."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


@pytest.fixture(scope="session")
def postgres() -> Mapping[str, str]:
    pytest.fail("a unit test uses no database: move it to tests/integration")
