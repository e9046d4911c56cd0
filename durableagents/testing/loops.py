"""A coroutine to its end, wherever the test is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Also where a loop is running already, as in a test that is a coroutine itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as own:
        return own.submit(asyncio.run, work).result()
