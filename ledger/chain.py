"""The hash chain that makes a run's journal tamper-evident. Pure: no Django, no I/O."""

#  body = sha256( clear ‖ sha256(packed) )                         computed by the writer
#  hash = sha256( prev ‖ seq ‖ epoch ‖ time ‖ body )               computed by the database, under the row lock
#
# Integers are 8 bytes big-endian, time is microseconds since 1970-01-01 UTC, an absent payload hashes as 32 zero bytes,
# and the `prev` of the first event is the hash of the run id's 16 bytes. Verification needs no key and no plaintext:
# the clear bytes and the digest of the packed ones are enough. The codes (`codes.py`) show who wrote an event.
# `manage.py ledger verify` checks both, and all related rows (`ledger/verification/`).

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

ZERO = bytes(32)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = struct.Struct(">qqq")


@dataclass(frozen=True, slots=True)
class Link:
    seq: int
    epoch: int
    at: datetime
    clear: bytes
    sealed: bytes | None
    prev_hash: bytes
    hash: bytes

    @classmethod
    def of(cls, row: Any) -> Link:
        """Build a link from a stored row; drivers may return bytes as memoryviews."""
        sealed = None if row.sealed is None else bytes(row.sealed)
        return cls(row.seq, row.epoch, row.at, bytes(row.clear), sealed, bytes(row.prev_hash), bytes(row.hash))

    def body(self) -> bytes:
        return body_hash(self.clear, self.sealed)

    def is_as_written(self, body: bytes) -> bool:
        return link_hash(self.prev_hash, self.seq, self.epoch, self.at, body) == self.hash


def genesis(run_id: UUID) -> bytes:
    return hashlib.sha256(run_id.bytes).digest()


def body_hash(clear: bytes, packed: bytes | None) -> bytes:
    return hashlib.sha256(clear + (ZERO if packed is None else hashlib.sha256(packed).digest())).digest()


def microseconds(at: datetime) -> int:
    """Return microseconds since 1970, without using a float."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def link_hash(prev: bytes, seq: int, epoch: int, at: datetime, body: bytes) -> bytes:
    """Return the digest that binds an event to its place and to all events before it."""
    return hashlib.sha256(prev + _NUMBERS.pack(seq, epoch, microseconds(at)) + body).digest()


def verify(run_id: UUID, links: Iterable[Link]) -> list[str]:
    """Return the problems of the chain itself; empty if it is intact. `links` ascend by seq from 1."""
    problems: list[str] = []
    prev, expected = genesis(run_id), 1
    for link in links:
        if link.seq != expected:
            problems.append(f"event {expected} is missing: the next one found is {link.seq}")
            expected = link.seq
        if link.prev_hash != prev:
            problems.append(f"event {link.seq} does not link to the event before it")
        if not link.is_as_written(link.body()):
            problems.append(f"event {link.seq} was changed: its content does not match its hash")
        prev, expected = link.hash, expected + 1
    return problems
