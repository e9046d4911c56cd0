"""Recordings as bytes: as they are, or encrypted under a key that is made of the installation's master key for this
alone, so that whoever has it can read exports and nothing else."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets

from runs.engine.recordings.recording import BadRecording, Recording, parsed, text_of

KEY_VARIABLE = "DURABLEAGENTS_CHECKPOINTS_KEY"
_MARK = b"durableagents sealed checkpoint 1\n"
_NONCE = 12


def key_of(master: bytes) -> str:
    """The exports' key, as a text for the environment of whoever replays them."""
    derived = hmac.new(master, b"durableagents checkpoint exports\x00", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(derived).decode()


def sealed(recording: Recording, key: str) -> bytes:
    """Encrypted and authenticated (AES-256-GCM)."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE)
    return _MARK + nonce + AESGCM(_raw(key)).encrypt(nonce, text_of(recording).encode(), _MARK)


def opened(found: bytes, key: str = "") -> Recording:
    """The recording in a file's bytes. `key` is for one that is encrypted; else the environment's is taken. Raises
    BadRecording."""
    if not found.startswith(_MARK):
        try:
            return parsed(found.decode())
        except UnicodeDecodeError:
            raise BadRecording("it is no text, and not encrypted by `checkpoints export`") from None
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    known = key or os.environ.get(KEY_VARIABLE, "")
    if not known:
        raise BadRecording(f"it is encrypted: set {KEY_VARIABLE} to what `manage.py checkpoints key` says")
    body = found[len(_MARK) :]
    try:
        return parsed(AESGCM(_raw(known)).decrypt(body[:_NONCE], body[_NONCE:], _MARK).decode())
    except InvalidTag:
        raise BadRecording("it does not open: it was changed, or written under another key") from None
    except ValueError as error:
        raise BadRecording(str(error)) from None


def _raw(key: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(key.encode())
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 32:
        raise BadRecording(f"{KEY_VARIABLE} holds no key: `manage.py checkpoints key` says it")
    return raw
