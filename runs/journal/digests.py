"""Secrets derived from the installation's master key.
One is for keyed digests of arguments and plans, which is used to compare calls and bind approvals; the other is for
idempotency keys and callback tokens."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from runs.engine.canonical import Hasher, keyed_hasher


@lru_cache(maxsize=1)
def hasher() -> Hasher:
    """Return the installation's hasher. Raises OSError if the master key can't be read."""
    return hasher_of(Path(settings.DURABLEAGENTS_MASTER_KEY_FILE).read_bytes().strip())


@lru_cache(maxsize=1)
def call_secret() -> bytes:
    """Return the secret for idempotency keys and callback tokens.
    Raises OSError if the master key can't be read."""
    master = Path(settings.DURABLEAGENTS_MASTER_KEY_FILE).read_bytes().strip()
    return hashlib.sha256(b"durableagents idempotency keys and callback tokens\x00" + master).digest()


def hasher_of(master: bytes) -> Hasher:
    """Return the hasher for a given master key."""
    return keyed_hasher(hashlib.sha256(b"durableagents input and plan digests\x00" + master).digest())
