"""The secret store: values go in, references come out, and only references are ever recorded.

One file per secret in `$DURABLEAGENTS_DATA/vault`, encrypted with AES-256-GCM under a key derived
from the master key file. The reference is bound into the ciphertext, so files can't be swapped. A
value is on disk, fsynced with its folder, before `put` returns, so the journal may refer to it from then on.

The first write of a reference wins, and it can be repeated: a keyed call that is sent again gets the same
secret from the upstream and stores it under the same reference.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from durableagents import env

_REFERENCE = re.compile(r"secret://[A-Za-z0-9._~/-]{1,200}")
_FORMAT = 1
_NONCE_BYTES = 12
_MASTER_BYTES = 32


class VaultError(Exception):
    """Base class of the vault's errors. No message ever contains a secret's value."""


class NoSuchSecret(VaultError):
    def __init__(self, reference: str) -> None:
        super().__init__(f"the vault holds nothing under {reference}")


class SecretUnreadable(VaultError):
    """The file was changed, moved, or written under another master key."""

    def __init__(self, reference: str, why: str) -> None:
        super().__init__(f"what the vault holds under {reference} can't be trusted: {why}")


class SecretExists(VaultError):
    def __init__(self, reference: str) -> None:
        super().__init__(f"the vault holds another value under {reference} and never replaces one")


class Vault:
    """Secrets in `folder`, under the master key in `master_key_file` (made with mode 0600 if absent)."""

    def __init__(self, folder: Path, master_key_file: Path) -> None:
        self._folder = folder
        self._master_key_file = master_key_file

    @classmethod
    def from_environment(cls) -> Vault:
        data = env.load().data
        return cls(data / "vault", data / "master.key")

    def put(self, reference: str, value: str) -> str:
        """Store `value`, durably; returns `reference`. Raises SecretExists, SecretUnreadable."""
        path = self._path(reference)
        env.ensure_directory(self._folder)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        env.write_private(draft, json.dumps(self._seal(reference, value)))
        try:
            # link(2) fails where a file exists: two writers can't both win, and none is replaced.
            os.link(draft, path)
        except FileExistsError:
            if not secrets.compare_digest(self.get(reference).encode(), value.encode()):
                raise SecretExists(reference) from None
        finally:
            draft.unlink()
        # Also after a lost race: the winner may not have come to its fsync yet. The folder above
        # holds this one's name and the master key's, without which the value would be lost.
        for folder in {self._folder, self._folder.parent, self._master_key_file.parent}:
            _fsync_folder(folder)
        return reference

    def get(self, reference: str) -> str:
        """The value under `reference`. Raises NoSuchSecret, SecretUnreadable."""
        try:
            text = self._path(reference).read_text("utf-8")
        except FileNotFoundError:
            raise NoSuchSecret(reference) from None
        except UnicodeDecodeError:
            raise SecretUnreadable(reference, "the file is damaged") from None
        return self._open(reference, text)

    def _seal(self, reference: str, value: str) -> dict[str, Any]:
        key = self._key()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, value.encode(), reference.encode())
        return {
            "format": _FORMAT,
            "reference": reference,
            "key": _fingerprint(key),
            "nonce": base64.b64encode(nonce).decode(),
            "ciphertext": base64.b64encode(sealed).decode(),
        }

    def _open(self, reference: str, text: str) -> str:
        key = self._key()
        try:
            held = json.loads(text)
            if held["format"] != _FORMAT:
                raise SecretUnreadable(reference, f"it is in format {held['format']!r}")
            if held["key"] != _fingerprint(key):
                raise SecretUnreadable(reference, "it was written under another master key")
            nonce = base64.b64decode(held["nonce"], validate=True)
            sealed = base64.b64decode(held["ciphertext"], validate=True)
            return AESGCM(key).decrypt(nonce, sealed, reference.encode()).decode()
        except InvalidTag:
            raise SecretUnreadable(reference, "it was changed or moved") from None
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise SecretUnreadable(reference, "the file is damaged") from None

    def _key(self) -> bytes:
        """Return the encryption key. It is derived, so that the master key can also be used for other purposes."""
        master = env.kept_secret(self._master_key_file, size=_MASTER_BYTES).encode()
        if len(master) < _MASTER_BYTES:
            raise VaultError(f"{self._master_key_file} holds no key: restore it from a backup")
        return HKDF(SHA256(), 32, salt=None, info=b"durableagents/vault/1").derive(master)

    def _path(self, reference: str) -> Path:
        # A hash, not the reference: no reference can name a file elsewhere.
        if not _REFERENCE.fullmatch(reference):
            raise VaultError(f"{reference[:80]!r} is not a secret reference")
        return self._folder / f"{hashlib.sha256(reference.encode()).hexdigest()}.json"


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"fingerprint" + key).hexdigest()[:16]


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
