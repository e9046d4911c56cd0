"""Programs that these tests need: where one is missing, a test is skipped, or fails under CI=true."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import NoReturn

import pytest

_PACKAGES = {"nginx": "nginx-light", "ip": "iproute2", "tc": "iproute2", "unshare": "util-linux"}
_FROM = {"kubernetes-validate": "pip install kubernetes-validate"}


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Create no test database: these tests have their own."""


@pytest.fixture
def program() -> Callable[[str], str]:
    """Return the path of a program."""

    def path(name: str) -> str:
        # Debian puts servers where only root's PATH looks.
        if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
            return found
        install = _FROM.get(name, f"Debian: apt-get install {_PACKAGES.get(name, name)}")
        lacking(f"no {name}: tests of deploy/ need one ({install})")

    return path


def lacking(what: str) -> NoReturn:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(what)
    pytest.skip(what)
