"""Stores of large values: a folder that all hosts share, or a storage that Django's STORAGES names."""

# A value is written under its SHA-256, in a folder of its run, before the transaction that refers to it. Every value is
# different, so nothing is ever overwritten. If the transaction is rolled back, the value is an orphan: see
# collecting.py.

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
from django import db
from django.conf import settings
from django.core.files.storage import Storage

from durableagents.object_storage import create, open_storage, read
from ledger.codec import StoreUnavailable

log = logging.getLogger("durableagents.contrib.large_values")
ALIAS = "large_values"
KEEPS_FROM = 8 * 1024
# This file marks a folder as the store. It is missing if the store's volume isn't mounted there.
MARKER = "durableagents-large-values"
_TEMPORARY = ".part"
_complain_at = 0.0


class Unavailable(StoreUnavailable, psycopg.OperationalError, db.OperationalError):
    """The store can't be used.

    As when the database is unreachable, nothing is read or written, and workers try again."""

    def __init__(self, why: str) -> None:
        global _complain_at
        super().__init__(why)
        if time.monotonic() >= _complain_at:  # log at most once a minute, because callers keep trying
            _complain_at = time.monotonic() + 60.0
            log.error("%s", why)


def missing(digest: bytes) -> ValueError:
    return ValueError(f"the stored value {digest.hex()} is missing")


class Folder:
    """A folder on a file system. Files survive a crash once they are written."""

    keeps_from = KEEPS_FROM

    def __init__(self, root: Path) -> None:
        self.root = root

    def problem(self) -> str:
        """Return why the folder can't be used; empty if it can be used."""
        if not self.root.is_absolute():
            return f"DURABLEAGENTS_LARGE_VALUES={self.root} is not an absolute path"
        if not (self.root / MARKER).is_file():
            there = "is not a store of large values" if self.root.is_dir() else "is not there"
            return (
                f"DURABLEAGENTS_LARGE_VALUES={self.root} {there}: mount its volume, or, if it is new, run "
                "`manage.py large_values prepare`"
            )
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            return f"DURABLEAGENTS_LARGE_VALUES={self.root} can't be written by this user"
        return ""

    def prepare(self) -> None:
        """Mark an existing folder as the store. Raises Unavailable."""
        if not self.root.is_absolute() or not self.root.is_dir():
            raise Unavailable(
                f"DURABLEAGENTS_LARGE_VALUES={self.root} is not an existing folder with an absolute path: mount its "
                "volume or create the folder, then run `manage.py large_values prepare` again"
            )
        try:
            (self.root / MARKER).touch(mode=0o600)
            _flush(self.root)
        except OSError as error:
            raise self._trouble(error) from error

    def put(self, run_id: UUID, digest: bytes, content: bytes) -> None:
        path = self._path(run_id, digest)
        if not (self.root / MARKER).exists():
            raise Unavailable(self.problem())
        try:
            self._make_folder(path.parent)
            temporary = path.with_name(f"{uuid4().hex}{_TEMPORARY}")
            try:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.rename(path)
            except OSError:
                with suppress(OSError):
                    temporary.unlink()
                raise
            _flush(path.parent)
        except OSError as error:
            raise self._trouble(error) from error

    def get(self, run_id: UUID, digest: bytes, most: int = -1) -> bytes:
        try:
            with self._path(run_id, digest).open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            if (self.root / MARKER).exists():
                raise missing(digest) from None
            raise Unavailable(self.problem()) from None
        except OSError as error:
            raise self._trouble(error) from error

    def runs(self) -> Iterator[UUID]:
        """Yield the runs that have values here."""
        for outer in sorted(self.root.glob("[0-9a-f][0-9a-f]")):
            for inner in sorted(outer.iterdir()):
                with suppress(ValueError):
                    yield UUID(hex=inner.name)

    def values(self, run_id: UUID) -> Iterator[tuple[str, datetime, int]]:
        """Yield name, time and size of a run's values, including files whose write was never finished."""
        for path in sorted(self._folder(run_id).glob("*")):
            with suppress(FileNotFoundError):
                at = path.stat()
                yield path.name, datetime.fromtimestamp(at.st_mtime, UTC), at.st_size

    def delete(self, run_id: UUID, name: str) -> None:
        (self._folder(run_id) / name).unlink(missing_ok=True)

    def _folder(self, run_id: UUID) -> Path:
        # Runs are spread over folders by the last digits of their ids, which are random; the first digits are the time.
        return self.root / run_id.hex[-2:] / run_id.hex

    def _path(self, run_id: UUID, digest: bytes) -> Path:
        return self._folder(run_id) / digest.hex()

    def _make_folder(self, folder: Path) -> None:
        for each in (folder.parent, folder):
            with suppress(FileExistsError):
                each.mkdir(mode=0o700)
                _flush(each.parent)

    def _trouble(self, error: OSError) -> Unavailable:
        return Unavailable(f"the store of large values {self.root}: {error.strerror or error}")


class DjangoStorage:
    """A storage of Django's STORAGES, such as one of django-storages.

    Each write and each read is a request to the storage.
    """

    keeps_from = KEEPS_FROM

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def problem(self) -> str:
        """Return why the storage can't be used; empty if it can be used. Sends one request."""
        try:
            is_marked = self.storage.exists(MARKER)
        except Exception as error:  # each storage backend raises its own exceptions
            return str(self._trouble(error))
        return (
            ""
            if is_marked
            else f"the storage `{ALIAS}` is not a store of large values: check its bucket, or, if it is new, run "
            "`manage.py large_values prepare`"
        )

    def prepare(self) -> None:
        """Mark the storage as the store. Raises Unavailable."""
        try:
            create(self.storage, MARKER, b"durableagents")
        except FileExistsError:
            pass
        except Exception as error:
            raise self._trouble(error) from error

    def put(self, run_id: UUID, digest: bytes, content: bytes) -> None:
        name = self._name(run_id, digest.hex())
        try:
            create(self.storage, name, content)
        except FileExistsError:  # the request was repeated because its first answer was lost
            if self.get(run_id, digest) != content:
                raise Unavailable(f"the storage `{ALIAS}` has other content at {name}: is its bucket shared?") from None
        except Exception as error:
            raise self._trouble(error) from error

    def get(self, run_id: UUID, digest: bytes, most: int = -1) -> bytes:
        try:
            return read(self.storage, self._name(run_id, digest.hex()), most)
        except FileNotFoundError:
            raise missing(digest) from None
        except Exception as error:
            raise self._trouble(error) from error

    def runs(self) -> Iterator[UUID]:
        for outer in self._listed("", folders=True):
            for inner in self._listed(outer, folders=True):
                with suppress(ValueError):
                    yield UUID(hex=inner)

    def values(self, run_id: UUID) -> Iterator[tuple[str, datetime, int]]:
        for name in self._listed(self._name(run_id, ""), folders=False):
            full = self._name(run_id, name)
            try:
                yield name, self.storage.get_modified_time(full), self.storage.size(full)
            except FileNotFoundError:
                continue  # it was deleted since it was listed
            except Exception as error:
                raise self._trouble(error) from error

    def delete(self, run_id: UUID, name: str) -> None:
        try:
            self.storage.delete(self._name(run_id, name))
        except Exception as error:
            raise self._trouble(error) from error

    def _listed(self, path: str, *, folders: bool) -> list[str]:
        try:
            return sorted(self.storage.listdir(path)[0 if folders else 1])
        except Exception as error:
            raise self._trouble(error) from error

    def _name(self, run_id: UUID, name: str) -> str:
        return f"{run_id.hex[-2:]}/{run_id.hex}/{name}".rstrip("/")

    def _trouble(self, error: Exception) -> Unavailable:
        return Unavailable(f"the storage `{ALIAS}`: {type(error).__name__}: {error}")


def configured() -> Folder | DjangoStorage | None:
    """Return the configured store, or None."""
    if ALIAS in settings.STORAGES:
        return DjangoStorage(open_storage(ALIAS))
    root: Path | None = settings.DURABLEAGENTS.large_values
    return None if root is None else Folder(root)


def refusal() -> str | None:
    """Return why this process must not serve, or None."""
    store = configured()
    return (store.problem() or None) if store is not None else None


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
