"""The head file of a host: it records, outside the database, how far the database is known to have committed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

LARGEST = 4096


class HeadDamaged(Exception):
    """The head file exists, but can't be parsed."""


@dataclass(frozen=True, slots=True)
class Head:
    """A host's head.

    `line` and `number` identify a mark of the database; `line` is None if no mark is known. `waits_for` is
    the halt that the host placed, or found in place, because the database lacks this head."""

    host: UUID
    system: str = ""
    timeline: int = 0
    lsn: int = 0
    line: UUID | None = None
    number: int = 0
    waits_for: UUID | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the head as plain data."""
        return {key: str(value) if isinstance(value, UUID) else value for key, value in asdict(self).items()}


def path() -> Path:
    """Return the path of this host's head file."""
    file: Path = settings.DURABLEAGENTS.restore_head_file
    return file


@contextmanager
def locked() -> Iterator[None]:
    """Lock the file against other processes of this host. Raises OSError, for example if the folder isn't writable."""
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read() -> Head | None:
    """Return the head, or None if there is no file. Raises HeadDamaged."""
    file = path()
    try:
        with file.open("rb") as stream:
            text = stream.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HeadDamaged(f"{file} can't be read: {error.strerror}") from None
    try:
        known = json.loads(text)
        head = known["head"]
        if known["sha256"] != _digest(head):
            raise ValueError
        line, waits_for = (None if head[name] is None else UUID(head[name]) for name in ("line", "waits_for"))
        timeline, lsn, number = (int(head[name]) for name in ("timeline", "lsn", "number"))
        return Head(UUID(head["host"]), str(head["system"]), timeline, lsn, line, number, waits_for)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise HeadDamaged(f"{file} is damaged: this application did not write it") from None


def write(head: Head) -> None:
    """Replace the file atomically and durably. The caller must hold the lock. Raises OSError."""
    file, document = path(), head.as_json()
    draft = file.with_name(f".{file.name}.new")
    text = json.dumps({"head": document, "sha256": _digest(document)}, indent=1) + "\n"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _digest(fields: dict[str, Any]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
