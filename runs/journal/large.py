"""Large payloads in a store outside the database.
Threads access the store, because an event loop, which drives many runs, must not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ledger.codec import Upload, is_kept, upload
from runs import failpoints

T = TypeVar("T")


async def upload_all(uploads: list[Upload]) -> None:
    """Upload these payloads to the store, and remove each from the list once it is stored.
    Raises StoreUnavailable."""
    while uploads:
        await asyncio.to_thread(upload, uploads[0])
        failpoints.hit("UP1")
        del uploads[0]


async def decoding(rows: Iterable[Iterable[Any]], decode: Callable[[], T]) -> T:
    """Return `decode()`.
    Decoding runs in a thread if these rows refer to the store. The encryption keys must have been read before."""
    if any(is_kept(value) for row in rows for value in row):
        return await asyncio.to_thread(decode)
    return decode()
