"""Create and read whole objects in a storage of Django's STORAGES, without ever overwriting one."""

from __future__ import annotations

import io
import posixpath
import sys
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files import File
from django.core.files.storage import Storage, storages

from runs.engine import extras

# S3's error codes for a conditional write when the object exists or is being written.
_EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_MISSING = frozenset({"NoSuchKey", "404"})
_S3 = "storages.backends.s3"


def open_storage(alias: str) -> Storage:
    """Return a storage of STORAGES. Raises ImproperlyConfigured if a package that it needs isn't installed."""
    check_packages(alias)
    return storages[alias]


def check_packages(alias: str) -> None:
    """Check that the packages of a storage in S3 are installed. Raises ImproperlyConfigured."""
    backend = str(settings.STORAGES.get(alias, {}).get("BACKEND", ""))
    if backend.startswith(_S3) and (lack := extras.missing("boto3", "storages")):
        raise ImproperlyConfigured(f"STORAGES[{alias!r}]: {lack}")


def create(storage: Storage, name: str, content: bytes) -> None:
    """Create an object. Raises FileExistsError, and the storage's own errors.

    S3 itself refuses to overwrite an object; for other storages, its existence is checked first.
    """
    if (client := _client_of(storage)) is not None:
        wanted = {**storage.get_object_parameters(name), "IfNoneMatch": "*"}  # type: ignore[attr-defined]
        try:
            client.put_object(**_place(storage, name), Body=content, **wanted)
        except client.exceptions.ClientError as error:
            if _code(error) in _EXISTS:
                raise FileExistsError(name) from None
            raise
        return
    if storage.exists(name):
        raise FileExistsError(name)
    saved = storage.save(name, File(io.BytesIO(content)))
    if saved != name:
        storage.delete(saved)
        raise FileExistsError(name)


def read(storage: Storage, name: str, most: int = -1) -> bytes:
    """Return an object's content, or its first `most` bytes; from S3 in one request.

    Raises FileNotFoundError, and the storage's own errors.
    """
    if (client := _client_of(storage)) is None:
        with storage.open(name) as file:
            return bytes(file.read() if most < 0 else file.read(most))
    part = {} if most < 0 else {"Range": f"bytes=0-{most - 1}"}
    try:
        content: bytes = client.get_object(**_place(storage, name), **part)["Body"].read()
    except client.exceptions.ClientError as error:
        if _code(error) in _MISSING:
            raise FileNotFoundError(name) from None
        raise
    return content


def _client_of(storage: Storage) -> Any:
    """Return the client of a storage in S3; None for other storages."""
    # The module is already loaded if the storage is in S3. Importing it takes long, so it isn't imported here.
    module = sys.modules.get(_S3)
    return storage.connection.meta.client if module and isinstance(storage, module.S3Storage) else None


def _place(storage: Any, name: str) -> dict[str, str]:
    return {"Bucket": storage.bucket_name, "Key": posixpath.join(storage.location, name)}


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
