"""A journal's hash chain, implemented independently of the app."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

Kind = Literal["duplicate", "lost", "stuck", "broken"]


@dataclass(frozen=True, slots=True)
class Link:
    """A journal row's columns as they are stored."""

    seq: int
    epoch: int
    at: datetime
    clear: bytes
    sealed: bytes | None
    prev_hash: bytes
    hash: bytes


def broken_at(run_id: str, links: list[Link]) -> Iterable[tuple[Kind, str]]:
    """Recompute the chain from stored bytes (the formula is in ledger/chain.py and docs); yield what is wrong."""
    prev = hashlib.sha256(uuid.UUID(run_id).bytes).digest()
    for link in links:
        sealed = bytes(32) if link.sealed is None else hashlib.sha256(link.sealed).digest()
        body = hashlib.sha256(link.clear + sealed).digest()
        micros = (link.at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        numbers = b"".join(number.to_bytes(8, "big") for number in (link.seq, link.epoch, micros))
        if link.prev_hash != prev or hashlib.sha256(prev + numbers + body).digest() != link.hash:
            yield "broken", f"event {link.seq} does not give its hash"
            return
        prev = link.hash
