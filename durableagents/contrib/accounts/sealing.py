"""Encrypt the secrets of second factors under a derived key, each bound to its account.

Neither a copy of the tables nor a row moved to another account gives access.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

from allauth.mfa.adapter import DefaultMFAAdapter
from django.conf import settings

from ledger.errors import DurableAgentsError

_MARK = "1:"
_NONCE = 12
_whose: ContextVar[str] = ContextVar("whose_factor")


class FactorUnreadable(DurableAgentsError):
    """A stored second factor can't be decrypted."""

    status, code, title = 409, "second-factor-unreadable", "Second factor can't be read"

    def __init__(self) -> None:
        super().__init__(
            "What this installation keeps of the second factor can't be read: it was changed, or written under "
            "another master key. Ask an administrator to remove the second factor; then set it up again."
        )


def data_of(row: Any) -> dict[str, Any]:
    """Return a factor row's data. Raises FactorUnreadable."""
    if not isinstance(row.data, dict):
        raise FactorUnreadable
    return row.data


def counted(data: dict[str, Any], name: str, *, default: int | None = None) -> int:
    """Return a counter from the data, if the database can increment it. Raises FactorUnreadable."""
    found = data.get(name, default)
    if type(found) is not int or not 0 <= found < 2**62:
        raise FactorUnreadable
    return found


@contextmanager
def sealed_for(user: Any) -> Iterator[None]:
    """Bind encryption and decryption inside the `with` block to this account."""
    token = _whose.set(str(user.pk))
    try:
        yield
    finally:
        _whose.reset(token)


class Adapter(DefaultMFAAdapter):  # type: ignore[misc]
    """django-allauth's adapter with encrypted secrets."""

    def encrypt(self, text: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE)
        return _MARK + base64.b64encode(nonce + AESGCM(_key()).encrypt(nonce, text.encode(), _bound())).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Decrypt a secret. Raises FactorUnreadable."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not isinstance(encrypted_text, str) or not encrypted_text.startswith(_MARK):
            raise FactorUnreadable
        try:
            sealed = base64.b64decode(encrypted_text[len(_MARK) :], validate=True)
            return AESGCM(_key()).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound()).decode()
        except (InvalidTag, ValueError):
            raise FactorUnreadable from None

    def get_totp_label(self, user: Any) -> str:
        return str(user.get_username())


def _bound() -> bytes:
    return b"durableagents second factor 1 of " + _whose.get().encode()


def _key() -> bytes:
    return _derived(settings.DURABLEAGENTS_MASTER_KEY_FILE, b"durableagents/second factor/1")


def naming_key() -> bytes:
    """Return the key from which the account handles stored by devices are derived."""
    return _derived(settings.DURABLEAGENTS_MASTER_KEY_FILE, b"durableagents/passkey handles/1")


@lru_cache(maxsize=4)
def _derived(path: Path, what: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt=None, info=what).derive(path.read_bytes().strip())
