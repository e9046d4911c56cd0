"""Storage for archives: the folder DURABLEAGENTS_ARCHIVE, or the storage that Django's STORAGES names `archive`."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage

from durableagents.object_storage import open_storage
from ledger.errors import DurableAgentsError
from ledger.verification.archives import ArchiveDamaged

ALIAS = "archive"
_CHUNK = 1024 * 1024


class StorageUnavailable(DurableAgentsError):
    """The storage for archives is not configured, or a file can't be stored or read."""

    status, code, title = 503, "archive-unavailable", "The storage of archives is not available"


def is_set() -> bool:
    return ALIAS in settings.STORAGES or settings.DURABLEAGENTS.archive is not None


def storage() -> Storage:
    """Return the configured storage. Raises StorageUnavailable."""
    if ALIAS in settings.STORAGES:
        return open_storage(ALIAS)
    folder: Path | None = settings.DURABLEAGENTS.archive
    if folder is None:
        raise StorageUnavailable("Set DURABLEAGENTS_ARCHIVE to a folder, or name a storage `archive` in STORAGES.")
    if not folder.is_absolute() or not folder.is_dir():
        raise StorageUnavailable(f"DURABLEAGENTS_ARCHIVE={folder} is not an existing folder with an absolute path.")
    if folder.resolve().is_relative_to(settings.DURABLEAGENTS.data.resolve()):
        raise StorageUnavailable(
            f"DURABLEAGENTS_ARCHIVE={folder} is inside the data folder {settings.DURABLEAGENTS.data}, which holds the "
            "keys: name a folder elsewhere, on a volume of its own."
        )
    return FileSystemStorage(location=folder, file_permissions_mode=0o600, directory_permissions_mode=0o700)


def put(name: str, source: IO[bytes], digest: bytes) -> None:
    """Store a file under exactly this name, unless one exists, and flush it. Raises StorageUnavailable."""
    place = storage()
    try:
        if place.exists(name):
            if _digest(place, name) == digest:
                return
            place.delete(name)  # a partial file from a process that was killed
        source.seek(0)
        saved = place.save(name, File(source))
        if saved != name:
            place.delete(saved)
            raise StorageUnavailable(f"The storage stored the archive as {saved} instead of {name}: try again.")
        _flush(place, name)
    except OSError as error:
        with suppress(OSError):
            place.delete(name)  # the file may be incomplete; the next attempt would also remove it
        raise StorageUnavailable(f"The archive {name} can't be stored: {error.strerror or error}.") from error


def _flush(place: Storage, name: str) -> None:
    if isinstance(place, FileSystemStorage):
        path = Path(place.path(name))
        root = Path(place.location)
        for each in (path, *(up for up in path.parents if up.is_relative_to(root))):
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _digest(place: Storage, name: str) -> bytes:
    found = sha256()
    with place.open(name, "rb") as file:
        while data := file.read(_CHUNK):
            found.update(data)
    return found.digest()


def opened(name: str) -> IO[bytes]:
    """Open a file for reading. Raises ArchiveDamaged if it is missing, StorageUnavailable."""
    place = storage()
    try:
        if not place.exists(name):
            raise ArchiveDamaged(f"the archive {name} is missing")
        found: IO[bytes] = place.open(name, "rb")
        return found
    except OSError as error:
        raise StorageUnavailable(f"The archive {name} can't be read: {error.strerror or error}.") from error


def remove(name: str) -> None:
    """Delete a file if it exists. Raises StorageUnavailable."""
    try:
        storage().delete(name)
    except OSError as error:
        raise StorageUnavailable(f"The archive {name} can't be deleted: {error.strerror or error}.") from error
