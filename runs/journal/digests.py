"""The keyed digest of arguments and plans: what the engine compares a call with, and an approval is bound to."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from runs.engine.canonical import Hasher, keyed_hasher


@lru_cache(maxsize=1)
def hasher() -> Hasher:
    """The same in every process of the installation. Raises OSError where the master key can't be read."""
    return hasher_of(Path(settings.DURABLEAGENTS_MASTER_KEY_FILE).read_bytes().strip())


def hasher_of(master: bytes) -> Hasher:
    """As `hasher`, under a master key."""
    return keyed_hasher(hashlib.sha256(b"durableagents input and plan digests\x00" + master).digest())
