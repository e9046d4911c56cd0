"""What the shell lends the engine, made from the settings."""

from __future__ import annotations

import hashlib
from concurrent.futures import Executor
from functools import lru_cache, partial
from pathlib import Path

from django.conf import settings

from ledger.access import ROLES
from runs import failpoints, waits
from runs.engine.canonical import Hasher, keyed_hasher
from runs.engine.providers import request_model
from runs.engine.visit import Runtime


@lru_cache(maxsize=1)
def hasher() -> Hasher:
    """The keyed digest of arguments and plans: the same in every process of the installation."""
    return hasher_of(Path(settings.DURABLEAGENTS_MASTER_KEY_FILE).read_bytes().strip())


def hasher_of(master: bytes) -> Hasher:
    """As `hasher`, under a master key."""
    return keyed_hasher(hashlib.sha256(b"durableagents input and plan digests\x00" + master).digest())


def callback_url(token: str) -> str:
    """Where a tool's other side sends its answer."""
    return f"{settings.DURABLEAGENTS.base_url}/api/v1/callbacks/{token}"


def runtime(threads: Executor | None = None) -> Runtime:
    """The engine's surroundings in a worker process."""
    return Runtime(
        hasher=hasher(), request_model=partial(request_model, model=settings.DURABLEAGENTS.model), callback_url=callback_url,
        hit=failpoints.hit, threads=threads, queues=frozenset(waits.queues), people=frozenset({*waits.queues, *ROLES}),
    )  # fmt: skip
