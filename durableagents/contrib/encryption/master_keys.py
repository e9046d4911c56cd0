"""Master keys, which encrypt the keys of runs.

They come from outside the database, from the sources in `DURABLEAGENTS_ENCRYPTION_KEYS`. The first one encrypts new
keys; all of them decrypt.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import psycopg
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django import db
from django.conf import settings

from durableagents.env import EnvironmentProblem
from durableagents.secret_sources import SourceProblem, post, read_file, run_command
from ledger.codec import KeyMissing

SIZE = 32
FAILURE_SECONDS = 5.0
_THIS_HOST = frozenset({"127.0.0.1", "::1", "localhost"})
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class KeyUnavailable(KeyMissing, EnvironmentProblem, psycopg.OperationalError, db.OperationalError):
    """A master key can't be read.

    As during an outage of the database, no payload is read or written, and workers try again.
    """


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A master key. `id` is a digest, which reveals nothing about its 256 random bits."""

    source: str
    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        return sha256(b"durableagents/master key id/1\x00" + self.secret).hexdigest()[:16]


def sources() -> list[str]:
    """Return the sources that the setting names; none if it is `none`."""
    named: list[str] = settings.DURABLEAGENTS.encryption_keys
    return [] if named == ["none"] else named


def current() -> MasterKey | None:
    """Return the key for new runs, or None if payloads of new runs aren't encrypted. Raises KeyUnavailable."""
    return _read(named[0]) if (named := sources()) else None


def find(key_id: str) -> MasterKey:
    """Return the master key with this id.

    Raises KeyUnavailable if no source in the setting contains it, or if a source that may have it can't be read.
    """
    problem = None
    for source in (*sources(), "master"):
        try:
            if (key := _read(source)).id == key_id:
                return key
        except KeyUnavailable as error:
            problem = problem or error
    raise problem or KeyUnavailable(
        f"master key {key_id} is missing from DURABLEAGENTS_ENCRYPTION_KEYS: add its source at the end, and restart"
    )


def check() -> None:
    """Read the keys of all sources. Raises KeyUnavailable."""
    for source in sources():
        _read(source)


def is_read(key_id: str | None) -> bool:
    """Return whether `find` can answer from memory, without reading a source."""
    return key_id is None or any(key.id == key_id for key in _keys.values())


def forget() -> None:
    """Forget all cached keys and failures, for tests."""
    _keys.clear()
    _failures.clear()


# Keys that were read, and sources that recently failed, so that a source that hangs doesn't delay every run.
_keys: dict[str, MasterKey] = {}
_failures: dict[str, tuple[float, str]] = {}


def _read(source: str) -> MasterKey:
    if (known := _keys.get(source)) is not None:
        return known
    failed_at, why = _failures.get(source, (-FAILURE_SECONDS, ""))
    if time.monotonic() < failed_at + FAILURE_SECONDS:
        raise KeyUnavailable(why)
    kind, _, where = source.partition(":")
    read = _READERS.get(kind)
    if read is None or bool(where) is (kind == "master"):
        # The message doesn't quote the entry, which may be a key.
        raise KeyUnavailable(
            "DURABLEAGENTS_ENCRYPTION_KEYS: an entry is not a key source; write master, file:PATH, env:NAME, "
            "command:COMMAND or https://HOST/PATH#wrapped=FILE, or none alone"
        )
    try:
        key = _keys[source] = MasterKey(source, read(source, where))
    except KeyUnavailable as error:
        _failures[source] = time.monotonic(), str(error)
        raise
    return key


def label(source: str) -> str:
    """Return a source's name without secrets: the first word of a command, or the beginning of a URL."""
    if source.startswith(("https:", "http:")):
        parts = urlsplit(source)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return source.split(maxsplit=1)[0] if source.startswith("command:") else source


def _problem(source: str, what: str) -> KeyUnavailable:
    return KeyUnavailable(f"DURABLEAGENTS_ENCRYPTION_KEYS: {label(source)!r} {what}")


def _of_master(source: str, _: str) -> bytes:
    path: Path = settings.DURABLEAGENTS_MASTER_KEY_FILE
    kept = _of_path(source, path).strip()
    return HKDF(SHA256(), SIZE, salt=None, info=b"durableagents/payload encryption/1").derive(kept)


def _of_file(source: str, where: str) -> bytes:
    return _decoded(source, _of_path(source, Path(where)))


def _of_path(source: str, path: Path) -> bytes:
    try:
        found = read_file(path)
    except SourceProblem as problem:
        raise _problem(source, str(problem)) from None
    if found is None:
        raise _problem(source, f"can't be read: {path}: No such file or directory")
    return found


def _of_environment(source: str, where: str) -> bytes:
    if where not in os.environ:
        raise _problem(source, "is not set in the environment")
    return _decoded(source, os.environ[where].encode())


def _of_command(source: str, where: str) -> bytes:
    """Return the key that a command prints, for example the command-line client of a key service."""
    try:
        printed = run_command(where, is_quoted=True)
    except SourceProblem as problem:
        raise _problem(source, str(problem)) from None
    return _decoded(source, printed)


def _of_service(source: str, _: str) -> bytes:
    """Return the key that a key service decrypts, using the protocol of AWS KMS.

    The service receives a POST of {"CiphertextBlob": …} and answers {"Plaintext": …}, both in base64.
    """
    url, _, fragment = source.partition("#")
    named = dict(parse_qsl(fragment))
    try:
        host = urlsplit(url).hostname if urlsplit(url).port != 0 else None  # `port` raises ValueError if it is invalid
    except ValueError:
        host = None
    if not host or named.keys() - {"token"} != {"wrapped"}:
        raise _problem(source, "names no file with the wrapped key: write https://HOST/PATH#wrapped=FILE&token=FILE")
    if url.startswith("http:") and host not in _THIS_HOST:
        raise _problem(source, "would send the key in the clear: http is allowed only to this host")
    headers = {"Content-Type": "application/json"}
    if "token" in named:
        headers["Authorization"] = f"Bearer {_of_path(source, Path(named['token'])).strip().decode('ascii', 'replace')}"
    wrapped = base64.b64encode(_of_path(source, Path(named["wrapped"]))).decode()
    try:
        status, answer = post(url, json.dumps({"CiphertextBlob": wrapped}).encode(), headers)
    except SourceProblem as problem:
        raise _problem(source, str(problem)) from None
    if status != 200:
        raise _problem(source, f"answered {status}")
    try:
        plaintext = json.loads(answer)["Plaintext"].encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _problem(source, 'did not answer with JSON that has a text "Plaintext"') from None
    return _decoded(source, plaintext.translate(_URL_SAFE))


def _decoded(source: str, text: bytes) -> bytes:
    """Return the key's bytes. The error doesn't quote the text, which may be a slightly wrong key."""
    stripped = text.strip()
    try:
        key = base64.b64decode(stripped + b"=" * (-len(stripped) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise _problem(source, f"holds no key: {SIZE} bytes in base64url are expected") from None
    if len(key) != SIZE:
        raise _problem(source, f"holds {len(key)} bytes: {SIZE} bytes in base64url are expected")
    return key


_READERS: dict[str, Callable[[str, str], bytes]] = {
    "master": _of_master,
    "file": _of_file,
    "env": _of_environment,
    "command": _of_command,
    "https": _of_service,
    "http": _of_service,
}
