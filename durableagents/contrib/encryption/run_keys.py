"""The keys of runs, and the cipher that uses them: AES-256-GCM with a random nonce, as of NIST SP 800-38D."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import connection, transaction

from durableagents.contrib.encryption import master_keys
from durableagents.contrib.encryption.master_keys import MasterKey
from ledger.codec import ENCRYPTED, STORED
from ledger.errors import RecordDamaged

log = logging.getLogger("durableagents.contrib.encryption")
NONCE = 12
MOST_KNOWN = 20_000
# With the run's first event: None, or whether it is encrypted, which shows a key that is gone.
_FIND = """
    SELECT r.id, k.master, k.wrapped,
        CASE WHEN e.run_id IS NOT NULL THEN
            coalesce(substring(e.sealed FROM CASE WHEN substring(e.sealed FOR 1) = %b THEN 26 ELSE 1 END FOR 1) = %b,
                false)
        END
    FROM unnest(%s::uuid[]) AS r(id) LEFT JOIN encryption_runkey k ON k.run_id = r.id
    LEFT JOIN ledger_event e ON e.run_id = r.id AND e.seq = 1"""
_STORE = "INSERT INTO encryption_runkey (run_id, master, wrapped, made_at) VALUES (%s, %s, %s, clock_timestamp())"
_CONTEXT = b"durableagents/key of a run/1"


class KeyDamaged(RecordDamaged, ValueError):
    """A run's key is gone, was changed, or is another run's: its payloads can't be read, and nothing is written."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__(run_id, "the key of its payloads")


class _Key:
    """A run's key, ready for use."""

    __slots__ = ("aead", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret, self.aead = secret, AESGCM(secret)


# The run that is being created in this context, with its key; None as a key if it gets none.
_newborn: ContextVar[tuple[UUID, _Key | None] | None] = ContextVar("newborn", default=None)
_complain_at = 0.0


def _complain(run_id: UUID, error: Exception) -> None:
    """Log a missing master key once a minute: what needs it waits."""
    global _complain_at
    if time.monotonic() >= _complain_at:
        _complain_at = time.monotonic() + 60.0
        log.error("run %s waits for a master key: %s", run_id, error)


def wrap(master: MasterKey, run_id: UUID, secret: bytes) -> bytes:
    """Return a run's key encrypted under a master key, bound to the run."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(master.secret).encrypt(nonce, secret, _CONTEXT + run_id.bytes)


def unwrap(master: MasterKey, run_id: UUID, wrapped: bytes) -> bytes:
    """Return a run's key. Raises KeyDamaged if it was changed or is another run's."""
    try:
        return AESGCM(master.secret).decrypt(wrapped[:NONCE], wrapped[NONCE:], _CONTEXT + run_id.bytes)
    except (InvalidTag, ValueError):
        raise KeyDamaged(run_id) from None


class RunKeys:
    """The cipher of payloads. It keeps the keys of the runs that this process used last; runs without a key, created
    while encryption was off, are stored in the clear."""

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, _Key | None] = OrderedDict()
        self._lock = Lock()

    # --- the Cipher of ledger.codec -----------------------------------------------------------------------------------

    def encrypt(self, run_id: UUID, packed: bytes, header: bytes) -> bytes | None:
        newborn = _newborn.get()
        key = newborn[1] if newborn is not None and newborn[0] == run_id else self._find(run_id)
        if key is None:
            return None
        nonce = os.urandom(NONCE)
        return nonce + key.aead.encrypt(nonce, packed, header)

    def decrypt(self, run_id: UUID, encrypted: bytes, header: bytes) -> bytes:
        if len(encrypted) < NONCE:
            raise ValueError("encrypted payload is cut off")
        try:
            return self._needed(run_id).aead.decrypt(encrypted[:NONCE], encrypted[NONCE:], header)
        except InvalidTag:
            raise ValueError("encrypted payload was changed, or is another run's") from None

    def decrypt_head(self, run_id: UUID, encrypted: bytes) -> bytes:
        # GCM encrypts in counter mode from the second block of its counter on.
        counter = modes.CTR(encrypted[:NONCE] + b"\x00\x00\x00\x02")
        return Cipher(algorithms.AES(self._needed(run_id).secret), counter).decryptor().update(encrypted[NONCE:])

    def disclose(self, run_id: UUID) -> bytes | None:
        key = self._read(run_id)
        return None if key is None else key.secret

    # --- hooks of the feature -----------------------------------------------------------------------------------------

    @contextmanager
    def birth(self, run_id: UUID) -> Iterator[list[tuple[str, list[Any]]]]:
        """Use a new key for a run inside, and yield the statement that stores it. Raises KeyUnavailable. Outside, the
        stored key is read: if the run's creation was refused, another process may create it with another key."""
        master, secret = master_keys.current(), AESGCM.generate_key(256)
        key = None if master is None else _Key(secret)
        token = _newborn.set((run_id, key))
        if connection.in_atomic_block:  # a service's transaction
            transaction.on_commit(partial(self._keep, run_id, key))
        try:
            yield [] if master is None else [(_STORE, [run_id, master.id, wrap(master, run_id, secret)])]
        finally:
            _newborn.reset(token)

    async def prepare(self, connection: Any, run_ids: Collection[UUID]) -> None:
        """Read the keys of these runs, because an event loop can't wait for them later. Raises KeyDamaged,
        KeyUnavailable."""
        missing = [run_id for run_id in run_ids if run_id not in self._known]
        if missing:
            for row in await (await connection.execute(_FIND, [STORED, ENCRYPTED, missing])).fetchall():
                if master_keys.is_read(row[1]):
                    key = self._learned(*row)
                else:  # a source may take seconds
                    key = await asyncio.to_thread(self._learned, *row)
                self._keep(row[0], key)  # also that there is none: an event loop can't look again

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _needed(self, run_id: UUID) -> _Key:
        key = self._find(run_id)
        if key is None:
            raise KeyDamaged(run_id)
        return key

    def _find(self, run_id: UUID) -> _Key | None:
        with self._lock:
            if run_id in self._known:
                self._known.move_to_end(run_id)
                return self._known[run_id]
        return self._read(run_id)

    def _read(self, run_id: UUID) -> _Key | None:
        """Return the key as its row has it."""
        with connection.cursor() as cursor:
            cursor.execute(_FIND, [STORED, ENCRYPTED, [run_id]])
            return self._learned(*cursor.fetchone())

    def _learned(
        self, run_id: UUID, master_id: str | None, wrapped: bytes | None, is_encrypted: bool | None
    ) -> _Key | None:
        """Return and keep a run's key, from a row of _FIND. Raises KeyDamaged, KeyUnavailable."""
        key = None
        if master_id is not None and wrapped is not None:
            try:
                key = _Key(unwrap(master_keys.find(master_id), run_id, bytes(wrapped)))
            except master_keys.KeyUnavailable as error:
                _complain(run_id, error)
                raise
        elif is_encrypted:
            raise KeyDamaged(run_id)
        if key is not None or is_encrypted is not None:  # a run that isn't there may be created with a key
            self._keep(run_id, key)
        return key

    def _keep(self, run_id: UUID, key: _Key | None) -> None:
        with self._lock:
            self._known[run_id] = key
            self._known.move_to_end(run_id)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
