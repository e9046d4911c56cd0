"""What a kind of event is (the kinds themselves are in `events.py`), and the bytes in which one is stored: clear
metadata, and a packed payload. Pure: no Django, no I/O."""

from __future__ import annotations

import io
import json
import math
import threading
from dataclasses import dataclass, fields
from typing import Any, ClassVar, dataclass_transform

import zstandard
from pydantic_core import from_json

RAW, ZSTD = b"\x00", b"\x01"
_COMPRESS_FROM = 256
MAX_PAYLOAD = 64 * 1024 * 1024
# A page decodes no more of a payload than this: it shows less.
MAX_HEAD = 256 * 1024
# As many stored bytes hold a head of that size: a block of Zstandard is at most 128 KiB, and never grows.
MAX_STORED_HEAD = MAX_HEAD + 256 * 1024
# The engine takes in no document deeper than 64 levels; a few more are its own wrapping. What is deeper was put there
# by other hands, and nobody is shown it.
MOST_DEEP = 200

# Made once: an encoder or a compressor made for each event costs more than its work.
_CLEAR = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_PAYLOAD = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is beyond any number that is stored")
    return number


_READ = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)


class _Zstd(threading.local):
    """A thread's own: neither may be used by two threads at once."""

    def __init__(self) -> None:
        self.compressor, self.decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()


_zstd = _Zstd()


def clear_bytes(metadata: dict[str, Any]) -> bytes:
    """Sorted compact ASCII JSON: any text survives it, and with no floats it has one form only."""
    return _CLEAR.encode(metadata).encode()


def read_clear(clear: bytes | memoryview) -> dict[str, Any]:
    """The inverse of `clear_bytes`. Raises ValueError for what is no object."""
    metadata = json.loads(bytes(clear))
    if not isinstance(metadata, dict):
        raise ValueError("the clear bytes are no object")
    return metadata


def pack(payload: Any) -> bytes | None:
    """Payload bytes as stored: one codec byte, then JSON, compressed where that pays. None stays None."""
    if payload is None:
        return None
    # Half a surrogate pair is no text: it is replaced here rather than refused, for what failed must always be
    # recordable.
    raw = _PAYLOAD.encode(payload).encode("utf-8", "replace")
    if len(raw) > MAX_PAYLOAD:
        raise ValueError(
            f"a payload of {len(raw)} bytes is too large for a journal: keep it elsewhere and record where"
        )
    if len(raw) < _COMPRESS_FROM:
        return RAW + raw
    compressed = _zstd.compressor.compress(raw)
    return ZSTD + compressed if len(compressed) < len(raw) else RAW + raw


def unpack(packed: bytes | memoryview | None) -> Any:
    """The inverse of `pack`. Raises ValueError on bytes that `pack` can't have made."""
    if packed is None:
        return None
    data = bytes(packed)
    codec, body = data[:1], data[1:]
    if codec == ZSTD:
        try:
            if zstandard.frame_content_size(body) > MAX_PAYLOAD:
                raise ValueError("packed payload is too large to be one")
            body = _zstd.decompressor.decompress(body, max_output_size=MAX_PAYLOAD)
        except zstandard.ZstdError as error:
            raise ValueError(f"packed payload does not decompress: {error}") from error
    elif codec != RAW:
        raise ValueError(f"packed payload has unknown codec {codec!r}")
    return read_json(body)


class Cut(str):
    """The text at which a payload was cut; `size` is the size of the whole payload in bytes."""

    size: int

    def __new__(cls, text: str, size: int) -> Cut:
        """Return the text with the size of what it was cut from."""
        cut = super().__new__(cls, text)
        cut.size = size
        return cut


def size_of(packed: bytes | memoryview, stored: int | None = None) -> int:
    """Return the size of a packed payload's JSON in bytes. Its first 20 bytes and its `stored` size are enough."""
    data = bytes(packed[:20])
    if data[:1] == ZSTD:
        try:
            if (size := zstandard.frame_content_size(data[1:])) >= 0:
                return size
        except zstandard.ZstdError:
            pass  # damaged: `unpack` says so
    return (len(packed) if stored is None else stored) - 1


def unpack_head(packed: bytes | memoryview | None, stored: int | None = None) -> Any:
    """Return the payload, or the head of a large one, in which the last text is a `Cut`.

    `packed` may itself be the first `MAX_STORED_HEAD` of `stored` bytes. Raises ValueError as `unpack` does.
    """
    if packed is None or (size := size_of(packed, stored)) <= MAX_HEAD:
        return unpack(packed)
    body = bytes(packed[1 : MAX_STORED_HEAD + 1])
    if packed[:1] == ZSTD:
        try:
            body = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)).read(MAX_HEAD)
        except zstandard.ZstdError as error:
            raise ValueError(f"packed payload does not decompress: {error}") from error
    text = body[:MAX_HEAD].decode("utf-8", "ignore")
    return _marked(from_json(text, allow_partial="trailing-strings"), size)


def _marked(value: Any, size: int) -> Any:
    """Mark the end of a document that was cut: its last text is where the cut was, or comes after its last value."""
    if isinstance(value, str):
        return Cut(value, size)
    at: Any = value
    while isinstance(at, (dict, list)):
        key: Any = (next(reversed(at)) if isinstance(at, dict) else -1) if at else None
        inner = at[key] if at else None
        if isinstance(inner, str):
            at[key] = Cut(inner, size)
        elif not isinstance(inner, (dict, list)):
            if isinstance(at, dict):
                at["…"] = Cut("", size)
            else:
                at.append(Cut("", size))
        at = inner
    return value


def read_json(stored: bytes | str) -> Any:
    """What a stored text says. Raises ValueError for what is no JSON, and for numbers that aren't finite: Python reads
    them, no payload of ours can hold them, and they could be sent to nobody."""
    text = stored if isinstance(stored, str) else stored.decode(json.detect_encoding(stored), "surrogatepass")
    return _READ.decode(text)


def is_too_deep(value: Any) -> bool:
    """Whether following it by recursion could exhaust the stack. Level by level, so without recursion itself."""
    level = [value]
    for _ in range(MOST_DEEP):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


# --- kinds ------------------------------------------------------------------------------------------------------------

KINDS: dict[str, type[Event]] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all kinds. `slot` is the identity of a logical call, or None for what concerns the run as a whole."""

    KIND: ClassVar[str] = ""
    FACT: ClassVar[str | None] = None
    _CLEAR: ClassVar[tuple[str, ...]] = ()

    slot: str | None = None
    attempt: int = 0
    payload: Any = None

    def __init_subclass__(cls, fact: str | None = None) -> None:
        """Make a kind of the class, under its own name."""
        dataclass(frozen=True, kw_only=True)(cls)
        cls.KIND, cls.FACT = cls.__name__, fact
        cls._CLEAR = tuple(f.name for f in fields(cls) if f.name not in ("slot", "attempt", "payload"))
        KINDS[cls.KIND] = cls

    @property
    def fact(self) -> str | None:
        """What this event says about its slot; with the wait's kind and a number where a slot may have several."""
        parts = (self.FACT, getattr(self, "wait", None), getattr(self, "n", None))
        return None if self.FACT is None else ".".join(str(p) for p in parts if p is not None)

    def clear(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._CLEAR}


def encode_clear(event: Event) -> bytes:
    """The bytes that the chain covers. Kind, slot and attempt are inside, so the row's columns are derived from hashed
    bytes and can be checked against them."""
    return clear_bytes({"kind": event.KIND, "slot": event.slot, "attempt": event.attempt, **event.clear()})


def decode(clear: bytes | memoryview, payload: Any = None) -> Event:
    """An event from its stored parts. Raises KeyError for a kind that this version of the vocabulary lacks, ValueError
    for no event."""
    metadata = read_clear(clear)
    return KINDS[metadata.pop("kind")](payload=payload, **metadata)
