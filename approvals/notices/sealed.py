"""Encrypt webhook addresses in the database under a derived key: knowing one is the right to write there, so a copy of
the tables must not reveal it."""

from __future__ import annotations

import base64
import secrets
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

_BOUND = b"durableagents address of a channel 1"
_NONCE = 12


class Unreadable(Exception):
    """It was changed, or encrypted under another master key."""


def seal(text: str) -> str:
    """Encrypt a text for storage."""
    nonce = secrets.token_bytes(_NONCE)
    return base64.b64encode(nonce + AESGCM(_key()).encrypt(nonce, text.encode(), _BOUND)).decode()


def opened(sealed: str) -> str:
    """Decrypt a stored text. Raises Unreadable."""
    try:
        raw = base64.b64decode(sealed, validate=True)
        return AESGCM(_key()).decrypt(raw[:_NONCE], raw[_NONCE:], _BOUND).decode()
    except (InvalidTag, ValueError):
        raise Unreadable("its address can't be read: it was changed, or sealed under another master key") from None


def _key() -> bytes:
    return _derived(settings.DURABLEAGENTS_MASTER_KEY_FILE)


@lru_cache(maxsize=4)
def _derived(path: Path) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"durableagents/notices/1").derive(path.read_bytes().strip())
