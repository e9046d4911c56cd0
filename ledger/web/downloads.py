"""Files of any size: made in a temporary file, then sent in pieces, so that a slow client uses no memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from threading import BoundedSemaphore
from typing import IO, Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from pydantic_core import PydanticSerializationError, to_json

from ledger.errors import Busy
from ledger.web import problems
from ledger.web.renderers import HEADERS

PIECE_BYTES = 256 * 1024
# A file stays on disk while a slow client reads it, so the number of files per process is limited.
_PLACES = BoundedSemaphore(16)
# Decoding a value takes several times its size in memory.
_DECODING = BoundedSemaphore(2)
_DECODING_WAITS_SECONDS = 10.0
# The syntax of one range (RFC 9110 §14.1): the unit is case-insensitive, and the list may have empty elements.
_RANGE = re.compile(r"bytes=[\t ,]*(\d{0,99})-(\d{0,99})[\t ,]*", re.IGNORECASE | re.ASCII)


class FileInPieces(StreamingHttpResponse):
    """Part of a file, or all of it, sent in pieces.

    Closing the response only ends the request: the file is still read after that, and `release` closes it. Raises Busy
    if too many files are being sent.
    """

    def __init__(self, file: IO[bytes], name: str, *, content_type: str, part: range, status: int = 200) -> None:
        if not _PLACES.acquire(blocking=False):
            file.close()
            raise Busy("Too many downloads are in progress")
        self.release = weakref.finalize(self, _release, file)
        file.seek(part.start)
        self._read = partial(_read, file, iter(range(len(part), 0, -PIECE_BYTES)))
        super().__init__(iter(self._read, b""), content_type=content_type, headers=HEADERS, status=status)
        self["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
        self["Content-Length"] = str(len(part))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(self._read):
            yield piece


def _read(file: IO[bytes], left: Iterator[int]) -> bytes:
    """Return the next piece; empty at the end. `left` yields the number of bytes left before each piece."""
    return file.read(min(PIECE_BYTES, next(left, 0)))


def _release(file: IO[bytes]) -> None:
    file.close()
    _PLACES.release()


def json_file(request: HttpRequest, name: str, read: Callable[[], Any]) -> HttpResponseBase:
    """Return the result of `read` as a JSON file, or the part of it that `Range` asks for (RFC 9110 §14).

    A request for several ranges gets the whole file. Raises Busy, and the errors of `read`.
    """
    if not _DECODING.acquire(timeout=_DECODING_WAITS_SECONDS):
        raise Busy("Other large values are being read")
    try:
        content = _encoded(read())
        etag, size = f'"{hashlib.sha256(content).hexdigest()}"', len(content)
        file = tempfile.TemporaryFile(prefix="download-")  # noqa: SIM115  the response closes it
        try:
            file.write(content)
        except BaseException:
            file.close()
            raise
        del content
    finally:
        _DECODING.release()
    part = _part(request, etag, size)
    if part is not None and not part:
        file.close()
        return _unsatisfiable(size)
    kept = range(size) if part is None else part
    response = FileInPieces(file, name, content_type="application/json", part=kept, status=200 if part is None else 206)
    response["ETag"], response["Accept-Ranges"] = etag, "bytes"
    if part is not None:
        response["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return response


def _encoded(value: Any) -> bytes:
    try:
        return to_json(value, fallback=str)
    except (PydanticSerializationError, ValueError):  # an unpaired surrogate, which occurs only in damaged rows
        return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")


def _part(request: HttpRequest, etag: str, size: int) -> range | None:
    """Return the requested range: empty if the file has none of these bytes, None if the whole file is requested."""
    wanted = _RANGE.fullmatch(request.headers.get("Range", ""))
    if wanted is None or request.headers.get("If-Range", etag) != etag or request.method != "GET":
        return None
    first, last = wanted.groups()
    if not first:
        return range(max(0, size - int(last)), size) if last else None
    if last and int(last) < int(first):
        return None
    return range(int(first), min(int(last) + 1, size) if last else size)


def _unsatisfiable(size: int) -> HttpResponse:
    problem = problems.identified(
        problems.document(
            416, "no-such-range", "No such range", f"The content has {size} bytes: request a range within it."
        )
    )
    response = HttpResponse(json.dumps(problem), status=416, content_type=problems.CONTENT_TYPE, headers=HEADERS)
    response["Content-Range"] = f"bytes */{size}"
    return response
