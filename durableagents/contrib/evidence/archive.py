"""Write the ZIP file of a bundle: files in order, without compression and dates.

The same content gives the same bytes, and `verify.py` refuses any other form.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from typing import BinaryIO

from durableagents.contrib.evidence.errors import CannotWrite

# Above these sizes, ZIP files would need another format.
MAX_BYTES = 2_000_000_000


class Archive:
    """A bundle that is being written to a seekable file. `entries` are the files so far, for the manifest."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False)
        self._written = 0
        self.entries: list[dict[str, str | int]] = []

    def add(self, name: str, parts: Iterable[bytes]) -> None:
        """Write a file from its parts. Raises CannotWrite if the bundle becomes too large."""
        info = zipfile.ZipInfo(name)  # the date is 1 January 1980
        info.create_system, info.external_attr = 3, 0o100644 << 16
        digest, size = hashlib.sha256(), 0
        with self._zip.open(info, "w") as member:
            for part in parts:
                size += len(part)
                self._written += len(part)
                if self._written > MAX_BYTES:
                    raise CannotWrite("A bundle has at most 2 GB. Export fewer runs, or leave payloads out.")
                digest.update(part)
                member.write(part)
        self.entries.append({"name": name, "sha256": digest.hexdigest(), "size": size})

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Write the directory. After an error nothing more is written, because the file is unusable."""
        if error is not None:
            self._zip.fp = None
        self._zip.close()
