"""Encrypt addresses and signing secrets for the database, under a key derived from the master key.

Anybody who knows such an address may write there, so a copy of the tables must not reveal it.
"""

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

_CONTEXT = b"durableagents address of a channel 1"
_NONCE_LENGTH = 12


class Undecryptable(Exception):
    """The text was changed, or it was encrypted under another master key."""


def encrypt(text: str) -> str:
    """Encrypt a text for storage."""
    nonce = secrets.token_bytes(_NONCE_LENGTH)
    return base64.b64encode(nonce + AESGCM(_key()).encrypt(nonce, text.encode(), _CONTEXT)).decode()


def decrypt(stored: str) -> str:
    """Decrypt a stored text. Raises Undecryptable."""
    try:
        raw = base64.b64decode(stored, validate=True)
        return AESGCM(_key()).decrypt(raw[:_NONCE_LENGTH], raw[_NONCE_LENGTH:], _CONTEXT).decode()
    except (InvalidTag, ValueError):
        message = "its address can't be read: it was changed, or encrypted under another master key"
        raise Undecryptable(message) from None


def _key() -> bytes:
    return _derive(settings.DURABLEAGENTS_MASTER_KEY_FILE)


@lru_cache(maxsize=4)
def _derive(path: Path) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"durableagents/notices/1").derive(path.read_bytes().strip())
