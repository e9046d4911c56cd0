"""Keys derived from the installation's master key, which is not in the database."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from ledger.codes import derived, derived_for_words


def code_key() -> bytes:
    """Return the key for writing and checking codes. Raises OSError if the master key can't be read."""
    return _read(settings.DURABLEAGENTS_MASTER_KEY_FILE)


def word_key() -> bytes:
    """Return the key for digests of search words. Raises OSError if the master key can't be read."""
    return _read_for_words(settings.DURABLEAGENTS_MASTER_KEY_FILE)


@lru_cache(maxsize=4)
def _read(path: Path) -> bytes:
    return derived(path.read_bytes().strip())


@lru_cache(maxsize=4)
def _read_for_words(path: Path) -> bytes:
    return derived_for_words(path.read_bytes().strip())
