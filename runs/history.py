"""A journal's rows as objects, after checking that they hang together: what a claimant goes on from."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from psycopg.rows import TupleRow

from ledger.chain import Link, body_hash, link_hash
from ledger.events import Event, decode, unseal
from runs.engine.errors import JournalBroken
from runs.engine.journal import Snapshot

log = logging.getLogger("runs.store")
COLUMNS = ("seq", "epoch", "at", "kind", "slot", "attempt", "fact", "clear", "sealed", "prev_hash", "hash")
CHECKPOINTS = "SELECT seq, generation, node, visit, fingerprint, state, checksum FROM runs_checkpoint WHERE run_id = %s ORDER BY seq DESC LIMIT 3"
EVENTS = f"""
SELECT {", ".join(COLUMNS)} FROM ledger_event
WHERE run_id = %s AND (seq = 1 OR seq >= %s) ORDER BY seq
"""
SIGNAL = f"""
SELECT {", ".join(COLUMNS)} FROM ledger_event
WHERE run_id = %s AND seq = (SELECT seq FROM runs_signal WHERE run_id = %s AND name = %s AND n = %s)
"""


def checksum(node: str, visit: int, state: bytes) -> bytes:
    """What a checkpoint must hash to before anything runs from it."""
    return hashlib.sha256(f"{node}|{visit}|".encode() + state).digest()


def newest_sound(run_id: str, rows: Sequence[TupleRow]) -> tuple[int, Snapshot | None]:
    """The newest checkpoint that passes its checksum; the journal makes up for those that don't."""
    for seq, generation, node, visit, fingerprint, state, stored in rows:
        if checksum(node, visit, bytes(state)) == bytes(stored):
            return seq, Snapshot(node, visit, generation, fingerprint, unseal(state))
        log.error("run %s: checkpoint at event %s fails its checksum; falling back to the one before", run_id, seq)
    if rows:
        raise JournalBroken(f"none of the last {len(rows)} checkpoints passes its checksum")
    return 0, None


def checked(row: TupleRow) -> tuple[Link, Event]:
    """One event, after checking that its content gives its hash and its columns. Raises JournalBroken."""
    seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, stored = row
    link = Link(seq, epoch, at, bytes(clear), None if sealed is None else bytes(sealed), bytes(prev_hash), bytes(stored))
    if link_hash(link.prev_hash, seq, epoch, at, body_hash(link.clear, link.sealed)) != link.hash:
        raise JournalBroken(f"event {seq} was changed: its content does not give its hash")
    try:
        event = decode(link.clear, unseal(link.sealed))
    except (KeyError, TypeError, ValueError) as error:
        raise JournalBroken(f"event {seq} can't be read: {error}") from error
    if (event.KIND, event.slot, event.attempt, event.fact) != (kind, slot, attempt, fact):
        raise JournalBroken(f"event {seq}: its columns say {kind} at {slot}, its content {event.KIND} at {event.slot}")
    return link, event


def read(run_id: str, rows: Sequence[TupleRow], anchor: int, *, at_least: int) -> tuple[Event, list[Event]]:
    """Events as objects, after checking that they link up from the checkpoint on. Raises JournalBroken."""
    created: Event | None = None
    tail: list[Event] = []
    prev: Link | None = None
    for row in rows:
        link, event = checked(row)
        if prev is not None and prev.seq >= anchor and (link.seq != prev.seq + 1 or link.prev_hash != prev.hash):
            raise JournalBroken(f"event {link.seq} does not follow event {prev.seq}")
        if link.seq == 1:
            created = event
        if link.seq > anchor:
            tail.append(event)
        prev = link
    if created is None or prev is None or prev.seq < at_least:
        raise JournalBroken(
            f"the journal of run {run_id} ends at event {prev.seq if prev else 0}, but event {at_least} was committed"
        )
    return created, tail
