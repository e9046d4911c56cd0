"""The base class of event kinds (see `events.py`) and their stored bytes: clear metadata and a payload.

Pure: no Django, no I/O; apps supply encryption (a `Cipher`) and storage for large payloads (a `Store`).
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import struct
import threading
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, dataclass_transform
from uuid import UUID

import zstandard
from pydantic_core import from_json

RAW, ZSTD, ENCRYPTED, STORED = b"\x00", b"\x01", b"\x02", b"\x03"
# Header of an encrypted payload: its codec byte, the size of its JSON in bytes, its run.
HEADER = struct.Struct(">cQ16s")
# Reference stored instead of a payload that is kept in a store: its codec byte, the size of its JSON in bytes, its run,
# the codec byte of the stored bytes, their SHA-256.
REFERENCE = struct.Struct(">cQ16sc32s")
# Random bytes in front of stored content, so that no two values are identical and deleting an orphan never deletes a
# value that another event refers to.
_SALT = 16
_COMPRESS_FROM = 256
# One value may take up to 64 MiB (engine/canonical.py), and a payload may combine several.
MAX_PAYLOAD = 80 * 1024 * 1024
# Pages decode at most this much of a payload, and show only a part of larger ones.
MAX_HEAD = 256 * 1024
# Stored bytes that suffice to decode a head of that size: a Zstandard block is at most 128 KiB and never grows.
MAX_STORED_HEAD = MAX_HEAD + 256 * 1024
# The engine accepts at most 64 levels, plus a few for its own wrapping. The engine did not write anything deeper, so it
# is not shown.
MAX_DEEP = 200

# Created once, because creating an encoder or compressor costs more than encoding an event.
_CLEAR = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)
_PAYLOAD = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is out of range")
    return number


_READ = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)


class _Zstd(threading.local):
    """A thread's compressor and decompressor: neither is thread-safe."""

    def __init__(self) -> None:
        self.compressor, self.decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()


_zstd = _Zstd()


class ContentUnavailable(Exception):
    """This process can't access a payload at the moment. The payload itself may be intact."""


class KeyMissing(ContentUnavailable):
    """This process can't obtain the key of a payload at the moment."""


class StoreUnavailable(ContentUnavailable):
    """The store of large payloads is unavailable, full, or not configured in this process."""


class Cipher(Protocol):
    """Encrypts packed payloads with their run's key. `header` is authenticated but not encrypted."""

    def encrypt(self, run_id: UUID, packed: bytes, header: bytes) -> bytes | None:
        """Return the encrypted bytes; None if the run has no key, so that they are stored unencrypted."""

    def decrypt(self, run_id: UUID, encrypted: bytes | memoryview, header: bytes | memoryview) -> bytes:
        """Return the packed bytes. Raises ValueError if the bytes were changed, or if their key no longer exists."""

    def decrypt_head(self, run_id: UUID, encrypted: bytes | memoryview) -> bytes:
        """Decrypt the beginning of packed bytes from the beginning of the encrypted ones.

        Nothing is authenticated. Raises ValueError if the key no longer exists.
        """

    def expect(self, run_id: UUID) -> None:
        """Announce that content of this run will probably be decrypted soon.

        This lets the keys of several runs be read together.
        """

    def disclose(self, run_id: UUID) -> bytes | None:
        """Return the run's current key, for someone who may read the run; None if it has none.

        Raises ValueError if the key no longer exists.
        """


_cipher: Cipher | None = None


def use_cipher(cipher: Cipher | None) -> None:
    """Use `cipher` to encrypt payloads that this process packs, and to decrypt those that it unpacks."""
    global _cipher
    _cipher = cipher


class Store(Protocol):
    """Keeps large packed payloads outside the database."""

    # Packed payloads of at least this many bytes go to the store.
    keeps_from: int

    def put(self, run_id: UUID, digest: bytes, content: bytes) -> None:
        """Store content durably under its SHA-256. Raises StoreUnavailable."""

    def get(self, run_id: UUID, digest: bytes, most: int = -1) -> bytes:
        """Return the content, or its first `most` bytes. Raises ValueError if it is missing, StoreUnavailable."""


_store: Store | None = None


def use_store(store: Store | None) -> None:
    """Keep the large payloads that this process packs in `store`, and read them from there."""
    global _store
    _store = store


@dataclass(frozen=True, slots=True)
class Upload:
    """Content that must still be written to the store."""

    run_id: UUID
    digest: bytes
    content: bytes


_uploads: ContextVar[list[Upload] | None] = ContextVar("uploads", default=None)


class collecting:
    """Collect in `uploads` the content that `pack` would write to the store, because an event loop can't wait for it.

    The caller must pass each one to `upload` before writing the packed bytes.
    """

    # This is a class, because every write enters it and contextlib's decorator takes ten times as long.
    __slots__ = ("_token", "_uploads")

    def __init__(self, uploads: list[Upload]) -> None:
        self._uploads = uploads

    def __enter__(self) -> None:
        self._token = _uploads.set(self._uploads)

    def __exit__(self, *error: object) -> None:
        _uploads.reset(self._token)


def upload(collected: Upload) -> None:
    """Write content to the store. Raises StoreUnavailable."""
    assert _store is not None, "it collected this"
    _store.put(collected.run_id, collected.digest, collected.content)


def is_kept(value: object) -> bool:
    """Return whether a column's value refers to a large payload in the store, so that reading it takes a request."""
    return (
        _store is not None
        and isinstance(value, (bytes, memoryview))
        and len(value) == REFERENCE.size
        and value[:1] == STORED
    )


def disclose_key(run_id: UUID) -> bytes | None:
    """Return the key of a run's payloads; None if they are stored unencrypted.

    Raises ValueError if the key no longer exists, KeyMissing if it can't be read now.
    """
    return None if _cipher is None else _cipher.disclose(run_id)


def read_clear(clear: bytes | memoryview) -> dict[str, Any]:
    """Decode the bytes of `encode_clear`. Raises ValueError if they don't contain an object."""
    metadata = json.loads(bytes(clear).decode())
    if not isinstance(metadata, dict):
        raise ValueError("the clear bytes are not an object")
    return metadata


def pack(payload: Any, run_id: UUID | None, *, may_store: bool = True) -> bytes | None:
    """Return payload bytes as stored: a codec byte, then JSON, compressed if smaller, encrypted if the run has a key.

    A large payload goes to the store, unless `may_store` is false, and the result is a reference to it. None stays
    None. Without a run, nothing is encrypted or written to the store. Raises ContentUnavailable, and ValueError for
    more than MAX_PAYLOAD bytes.
    """
    if payload is None:
        return None
    # A lone surrogate is replaced instead of refused, because it must always be possible to record a failure.
    raw = _PAYLOAD.encode(payload).encode("utf-8", "replace")
    if len(raw) > MAX_PAYLOAD:
        raise ValueError(
            f"a payload of {len(raw)} bytes is too large for a journal (limit {MAX_PAYLOAD}): store its values"
            " elsewhere (object storage, a file) and record where"
        )
    size, packed = len(raw), b""
    if size >= _COMPRESS_FROM and len(compressed := _zstd.compressor.compress(raw)) < size:
        packed = ZSTD + compressed
        del compressed
    packed = packed or RAW + raw
    del raw  # the value may take up to 80 MiB
    if run_id is None:
        return packed
    if _cipher is not None:
        header = HEADER.pack(ENCRYPTED, size, run_id.bytes)
        encrypted = _cipher.encrypt(run_id, packed, header)
        packed = packed if encrypted is None else header + encrypted
    if not may_store or _store is None or len(packed) < _store.keeps_from:
        return packed
    content = os.urandom(_SALT) + packed
    digest = hashlib.sha256(content).digest()
    if (uploads := _uploads.get()) is None:
        _store.put(run_id, digest, content)
    else:
        uploads.append(Upload(run_id, digest, content))
    return REFERENCE.pack(STORED, size, run_id.bytes, packed[:1], digest)


def stored_at(packed: bytes | memoryview) -> tuple[UUID, bytes] | None:
    """Return run and SHA-256 of a payload in the store; None if `packed` contains the payload itself.

    Raises ValueError for a damaged reference.
    """
    if packed[:1] != STORED:
        return None
    if len(packed) != REFERENCE.size:
        raise ValueError("the reference to a large payload is cut off")
    _, _, run_id, _, digest = REFERENCE.unpack(packed)
    return UUID(bytes=run_id), digest


def kept_content(packed: bytes) -> bytes | None:
    """Return the store's content of a large payload; None if the payload isn't in the store.

    The content is verified by its SHA-256. Raises ValueError, StoreUnavailable.
    """
    return _content(*place) if (place := stored_at(packed)) is not None else None


def _content(run_id: UUID, digest: bytes, most: int = -1) -> bytes:
    if _store is None:
        raise StoreUnavailable("a large payload is in a store, and this process has none")
    try:
        content = _store.get(run_id, digest, most)
    except ValueError:
        if _cipher is not None:
            _cipher.decrypt_head(
                run_id, bytes(_SALT)
            )  # raises an error if the run was erased, because then nothing is missing
        raise
    if most < 0 and hashlib.sha256(content).digest() != digest:
        raise ValueError(f"the stored value {digest.hex()} was changed")
    return content


def _load_stored(reference: bytes, most: int = -1) -> memoryview:
    """Return a payload's bytes from the store; with `most`, only the first ones, which are not verified.

    Raises ValueError, StoreUnavailable.
    """
    place = stored_at(reference)
    assert place is not None
    return memoryview(_content(*place, most if most < 0 else most + _SALT))[_SALT:]


def encrypted(content: Any, run_id: UUID | None) -> bytes | None:
    """Return content packed in the same way as by `pack` without a store; None if it is to be stored unencrypted."""
    if _cipher is None or run_id is None:
        return None
    packed = pack(content, run_id, may_store=False)
    return packed if packed is not None and packed[:1] == ENCRYPTED else None


def expect(run_id: UUID) -> None:
    """Announce that encrypted content of this run was read but not decrypted yet."""
    if _cipher is not None:
        _cipher.expect(run_id)


def _decrypted(data: bytes | memoryview, *, is_cut: bool = False) -> bytes:
    """Return an encrypted payload's packed bytes. Raises ValueError."""
    if len(data) < HEADER.size:
        raise ValueError("encrypted payload is cut off")
    if _cipher is None:
        raise ValueError("the payload is encrypted, and this installation has no app to decrypt it")
    header, encrypted = data[: HEADER.size], data[HEADER.size :]
    run_id = UUID(bytes=HEADER.unpack(header)[2])
    if is_cut:
        return _cipher.decrypt_head(run_id, encrypted)
    return _cipher.decrypt(run_id, encrypted, header)


def unpack(packed: bytes | memoryview | None) -> Any:
    """Decode the bytes of `pack`. Raises ValueError for bytes that `pack` can't have made."""
    if packed is None:
        return None
    # Views instead of copies, since a payload may take 80 MiB.
    data: bytes | memoryview = bytes(packed)
    if data[:1] == STORED:
        data = _load_stored(bytes(data))
    if data[:1] == ENCRYPTED:
        data = _decrypted(data)
    codec, body = bytes(data[:1]), memoryview(data)[1:]
    del data
    if codec == ZSTD:
        try:
            if zstandard.frame_content_size(body) > MAX_PAYLOAD:
                raise ValueError("packed payload is too large")
            body = memoryview(_zstd.decompressor.decompress(body, max_output_size=MAX_PAYLOAD))
        except zstandard.ZstdError as error:
            raise ValueError(f"packed payload does not decompress: {error}") from error
    elif codec != RAW:
        raise ValueError(f"packed payload has unknown codec {codec!r}")
    text = str(
        body, "utf-8", "surrogatepass"
    )  # decoded as text first, because json's detection of the encoding takes longer
    del body
    return read_json(text)


class Cut(str):
    """A truncated text in a payload; `size` is the whole payload's size in bytes."""

    size: int

    def __new__(cls, text: str, size: int) -> Cut:
        cut = super().__new__(cls, text)
        cut.size = size
        return cut


def size_of(packed: bytes | memoryview, stored: int | None = None) -> int:
    """Return the size in bytes of a packed payload's JSON, from its first 20 bytes and its `stored` size."""
    data = bytes(packed[:20])
    if data[:1] in (ENCRYPTED, STORED):
        return int.from_bytes(data[1:9], "big")
    if data[:1] == ZSTD:
        try:
            if (size := zstandard.frame_content_size(data[1:])) >= 0:
                return size
        except zstandard.ZstdError:
            pass  # damaged, so `unpack` raises
    return (len(packed) if stored is None else stored) - 1


def unpack_head(packed: bytes | memoryview | None, stored: int | None = None) -> Any:
    """Return the payload, or the head of a large one, in which the last text is a `Cut`.

    Raises ValueError like `unpack`. `packed` may be just the first `MAX_STORED_HEAD` bytes out of `stored`.
    """
    if packed is None or (size := size_of(packed, stored)) <= MAX_HEAD:
        return unpack(packed)
    if packed[:1] == STORED:
        packed, stored = bytes(_load_stored(bytes(packed), MAX_STORED_HEAD)), MAX_STORED_HEAD + 1
    if packed[:1] == ENCRYPTED:
        data = _decrypted(bytes(packed), is_cut=stored is not None and len(packed) < stored)
    else:
        data = bytes(packed[: MAX_STORED_HEAD + 1])
    body = data[1 : MAX_STORED_HEAD + 1]
    if data[:1] == ZSTD:
        try:
            body = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)).read(MAX_HEAD)
        except zstandard.ZstdError as error:
            raise ValueError(f"packed payload does not decompress: {error}") from error
    text = body[:MAX_HEAD].decode("utf-8", "ignore")
    return _marked(from_json(text, allow_partial="trailing-strings"), size)


def _marked(value: Any, size: int) -> Any:
    """Mark where a document was cut off: in its last text, or after its last value."""
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
    """Decode stored JSON. Raises ValueError for invalid JSON and for non-finite numbers, which Python would accept."""
    text = stored if isinstance(stored, str) else stored.decode(json.detect_encoding(stored), "surrogatepass")
    return _READ.decode(text)


def is_too_deep(value: Any) -> bool:
    """Return whether recursion over the value could exhaust the stack. Works level by level, without recursion."""
    level = [value]
    for _ in range(MAX_DEEP):
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
    """Base of all kinds. `slot` identifies a logical call; None for events of the run as a whole."""

    KIND: ClassVar[str] = ""
    FACT: ClassVar[str | None] = None
    _CLEAR: ClassVar[tuple[str, ...]] = ()

    slot: str | None = None
    attempt: int = 0
    payload: Any = None

    def __init_subclass__(cls, fact: str | None = None) -> None:
        """Register the class as an event kind, under its own name."""
        dataclass(frozen=True, kw_only=True)(cls)
        cls.KIND, cls.FACT = cls.__name__, fact
        cls._CLEAR = tuple(f.name for f in fields(cls) if f.name not in ("slot", "attempt", "payload"))
        KINDS[cls.KIND] = cls

    @property
    def fact(self) -> str | None:
        """Return the fact about the slot, including the wait's kind, and a number where a slot may have several."""
        if self.FACT is None:
            return None
        wait, n = getattr(self, "wait", None), getattr(self, "n", None)
        fact = self.FACT if wait is None else f"{self.FACT}.{wait}"
        return fact if n is None else f"{fact}.{n}"

    def clear(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._CLEAR}


def encode_clear(event: Event) -> bytes:
    """Return the bytes that the chain covers, as sorted compact ASCII JSON.

    The bytes include kind, slot and attempt, so that the row's columns can be checked. ASCII is safe for any text and,
    without floats, the form is canonical.
    """
    metadata = {"kind": event.KIND} | vars(event)
    del metadata["payload"]
    return _CLEAR.encode(metadata).encode()


def decode(clear: bytes | memoryview, payload: Any = None) -> Event:
    """Decode an event from its stored parts. Raises KeyError for an unknown kind, ValueError for an invalid event."""
    metadata = read_clear(clear)
    return KINDS[metadata.pop("kind")](payload=payload, **metadata)
