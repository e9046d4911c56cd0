"""The key of the codes, from the installation's master key: the same in every process, and nowhere in the database."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from ledger.codes import derived


def code_key() -> bytes:
    """The key under which this installation writes and checks codes. Raises OSError where the master key can't be
    read."""
    return _read(settings.DURABLEAGENTS_MASTER_KEY_FILE)


@lru_cache(maxsize=4)
def _read(path: Path) -> bytes:
    return derived(path.read_bytes().strip())
