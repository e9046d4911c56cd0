"""The keys of runs, and the cipher that uses them: AES-256-GCM with a random nonce (NIST SP 800-38D)."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock, local
from typing import Any
from uuid import UUID
from weakref import WeakSet

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import connection, transaction
from psycopg.pq import TransactionStatus

from durableagents.contrib.encryption import master_keys
from durableagents.contrib.encryption.master_keys import MasterKey
from ledger.codec import ENCRYPTED, STORED
from ledger.contents import INSTALLATION
from ledger.erasure import Erased, Erasure, erasure_of
from ledger.errors import RecordDamaged

log = logging.getLogger("durableagents.contrib.encryption")
NONCE = 12
MAX_KNOWN = 20_000
MAX_EXPECTED = 1000  # number of keys read in one query
LOOK_SECONDS = 1.0
# From the run's first event: None if the run has no event, else whether that event is encrypted, which reveals a
# missing key. From the register: None if there is no entry, else whether the run was erased before this transaction (an
# erasure by this one may still be rolled back).
_FIND = """
    SELECT r.id, k.master, k.wrapped,
        CASE WHEN e.run_id IS NOT NULL THEN
            coalesce(substring(e.sealed FROM CASE WHEN substring(e.sealed FOR 1) = %b THEN 26 ELSE 1 END FOR 1) = %b,
                false)
        END,
        CASE WHEN x.run_id IS NOT NULL THEN x.tx IS DISTINCT FROM txid_current_if_assigned() END
    FROM unnest(%s::uuid[]) AS r(id) LEFT JOIN encryption_runkey k ON k.run_id = r.id
    LEFT JOIN ledger_event e ON e.run_id = r.id AND e.seq = 1 LEFT JOIN encryption_erasure x ON x.run_id = r.id"""
# Selects erasures that may have been committed since a snapshot, and the snapshot for the next query.
_ERASED_SINCE = """
    SELECT txid_snapshot_xmin(txid_current_snapshot()),
           ARRAY(SELECT run_id FROM encryption_erasure WHERE tx >= %s OR run_id = ANY(%s))"""
_NEVER = 2**63 - 1
_STORE = "INSERT INTO encryption_runkey (run_id, master, wrapped, made_at) VALUES (%s, %s, %s, clock_timestamp())"
_CONTEXT = b"durableagents/key of a run/1"


class KeyDamaged(RecordDamaged, ValueError):
    """A run's key is missing, changed or belongs to another run: its payloads can't be read, and nothing is written."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__(run_id, "the key of its payloads")


class KeyErased(Erased, KeyDamaged):
    """The run's key was destroyed by a recorded erasure."""

    def __init__(self, run_id: UUID, erasure: Erasure | None = None) -> None:
        Erased.__init__(self, run_id, erasure)


class _Key:
    """A run's key, ready for use."""

    __slots__ = ("aead", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret, self.aead = secret, AESGCM(secret)


# The run that is being created in this context, and its key (None if it gets none).
_newborn: ContextVar[tuple[UUID, _Key | None] | None] = ContextVar("newborn", default=None)
_complain_at = 0.0


def _complain(run_id: UUID, error: Exception) -> None:
    """Log at most once a minute that a master key is missing, and that work waits for it."""
    global _complain_at
    if time.monotonic() >= _complain_at:
        _complain_at = time.monotonic() + 60.0
        log.error("run %s waits for a master key: %s", run_id, error)


def wrap(master: MasterKey, run_id: UUID, secret: bytes) -> bytes:
    """Encrypt a run's key under a master key, bound to the run."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(master.secret).encrypt(nonce, secret, _CONTEXT + run_id.bytes)


def unwrap(master: MasterKey, run_id: UUID, wrapped: bytes) -> bytes:
    """Decrypt a run's key. Raises KeyDamaged if it was changed or belongs to another run."""
    try:
        return AESGCM(master.secret).decrypt(wrapped[:NONCE], wrapped[NONCE:], _CONTEXT + run_id.bytes)
    except (InvalidTag, ValueError):
        raise KeyDamaged(run_id) from None


_instances: WeakSet[RunKeys] = WeakSet()


def forget(run_id: UUID) -> None:
    """Drop a run's key from this process's memory. Other processes notice the erasure by themselves."""
    for keys in _instances:
        keys.forget(run_id)


class RunKeys:
    """The cipher of payloads.

    The cipher caches the keys of the runs that this process used most recently. Runs without a key, which were created
    while encryption was off, are stored unencrypted.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, _Key | None] = OrderedDict()
        self._erased: OrderedDict[UUID, Erasure | None] = OrderedDict()
        self._look_at, self._since = 0.0, _NEVER
        _instances.add(self)
        self._lock = Lock()
        self._local = local()

    # --- the Cipher of ledger.codec -----------------------------------------------------------------------------------

    def encrypt(self, run_id: UUID, packed: bytes, header: bytes) -> bytes | None:
        newborn = _newborn.get()
        if run_id == INSTALLATION and not master_keys.sources():
            return None
        key = newborn[1] if newborn is not None and newborn[0] == run_id else self._find(run_id)
        if key is None:
            return None
        nonce = os.urandom(NONCE)
        return nonce + key.aead.encrypt(nonce, packed, header)

    def decrypt(self, run_id: UUID, encrypted: bytes | memoryview, header: bytes | memoryview) -> bytes:
        if len(encrypted) < NONCE:
            raise ValueError("encrypted payload is cut off")
        try:
            return self._needed(run_id).aead.decrypt(encrypted[:NONCE], encrypted[NONCE:], header)
        except InvalidTag:
            raise ValueError("encrypted payload was changed, or belongs to another run") from None

    def decrypt_head(self, run_id: UUID, encrypted: bytes | memoryview) -> bytes:
        # GCM encrypts in counter mode, starting with the second counter block.
        counter = modes.CTR(bytes(encrypted[:NONCE]) + b"\x00\x00\x00\x02")
        return Cipher(algorithms.AES(self._needed(run_id).secret), counter).decryptor().update(encrypted[NONCE:])

    def expect(self, run_id: UUID) -> None:
        if run_id not in self._known:
            if len(expected := self._expected_here()) >= MAX_EXPECTED:
                expected.clear()
            expected.add(run_id)

    def disclose(self, run_id: UUID) -> bytes | None:
        key = self._read(run_id)
        return None if key is None else key.secret

    # --- hooks of the feature -----------------------------------------------------------------------------------------

    @contextmanager
    def birth(self, run_id: UUID) -> Iterator[list[tuple[str, list[Any]]]]:
        """Use a new key for a run inside the `with` block, and yield the statement that stores it.

        Raises KeyUnavailable.

        Outside the block, the stored key is read: if the run's creation was refused, another process may create the run
        with another key.
        """
        master, secret = master_keys.current(), AESGCM.generate_key(256)
        key = None if master is None else _Key(secret)
        token = _newborn.set((run_id, key))
        if connection.in_atomic_block:  # inside a service's transaction
            transaction.on_commit(partial(self._keep, run_id, key))
        try:
            yield [] if master is None else [(_STORE, [run_id, master.id, wrap(master, run_id, secret)])]
        finally:
            _newborn.reset(token)

    async def prepare(self, connection: Any, run_ids: Collection[UUID]) -> None:
        """Read the keys of these runs in advance, because an event loop can't wait for them later.

        Raises KeyDamaged, KeyUnavailable.
        """
        missing = [run_id for run_id in run_ids if run_id not in self._known]
        if INSTALLATION not in self._known and master_keys.sources():
            await asyncio.to_thread(self._prepare_installation)
        if missing:
            for row in await (await connection.execute(_FIND, [STORED, ENCRYPTED, missing])).fetchall():
                if master_keys.is_read(row[1]):
                    key = self._learned(*row)
                else:  # reading a source may take seconds
                    key = await asyncio.to_thread(self._learned, *row)
                self._keep(row[0], key)  # Missing keys are cached too, because an event loop can't read them later.

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _needed(self, run_id: UUID) -> _Key:
        key = self._find(run_id)
        if key is None:
            raise KeyDamaged(run_id)
        return key

    def _find(self, run_id: UUID) -> _Key | None:
        self._drop_erased()
        with self._lock:
            if run_id in self._erased:
                raise KeyErased(run_id, self._erased[run_id])
            if run_id in self._known:
                self._known.move_to_end(run_id)
                return self._known[run_id]
        if run_id == INSTALLATION:
            return self._of_installation()
        return self._read(run_id)

    def _read(self, run_id: UUID) -> _Key | None:
        """Read the key of a run from its row."""
        others = self._expected_here() - {run_id}
        self._expected_here().clear()
        with connection.cursor() as cursor:
            cursor.execute(_FIND, [STORED, ENCRYPTED, [run_id, *others]])
            rows = {row[0]: row for row in cursor.fetchall()}
        for other in others:
            with suppress(KeyDamaged, master_keys.KeyUnavailable):  # the error is raised when that key is used
                self._learned(*rows[other])
        try:
            return self._learned(*rows[run_id])
        except KeyErased:
            raise KeyErased(run_id, self._noted(run_id, is_final=rows[run_id][4])) from None

    def _noted(self, run_id: UUID, *, is_final: bool) -> Erasure | None:
        """Return the erasure of a run, and cache it unless it may be rolled back."""
        erasure = erasure_of(run_id)
        if is_final:
            with self._lock:
                self._erased[run_id] = erasure
                if len(self._erased) > MAX_KNOWN:
                    self._erased.popitem(last=False)
        return erasure

    def _drop_erased(self) -> None:
        """Drop the keys of runs that any process has erased since the last check.

        This happens at most once a second. It is skipped in an event loop, since that only drives runs that haven't
        ended, and without a connection, since then nothing was read from the database.
        """
        now = time.monotonic()
        if now < self._look_at or asyncio._get_running_loop() is not None:
            return  # checked first, since looking up the connection costs more than encrypting
        link: Any = connection.connection
        if link is None or link.closed:
            return
        if link.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
            return
        known = list(self._known) if self._since == _NEVER else []
        # Bypasses Django's cursor, so that the number of a page's queries doesn't depend on the second in which it is
        # read.
        self._since, erased = link.execute(_ERASED_SINCE, [self._since, known]).fetchone()
        self._look_at = now + LOOK_SECONDS
        for run_id in erased:
            self.forget(run_id)

    def forget(self, run_id: UUID) -> None:
        """Drop a run's key from the cache."""
        with self._lock:
            self._known.pop(run_id, None)

    def _of_installation(self) -> _Key | None:
        """Return the key of content that belongs to no run. Its row is like that of a run, so rotation covers it too.

        It is created when first needed, and cached once it is committed.
        """
        with connection.cursor() as cursor:
            for _ in range(2):
                cursor.execute(_FIND, [STORED, ENCRYPTED, [INSTALLATION]])
                _, master_id, wrapped, *_ = cursor.fetchone()
                if master_id is not None:
                    key = _Key(unwrap(master_keys.find(master_id), INSTALLATION, bytes(wrapped)))
                    transaction.on_commit(partial(self._keep, INSTALLATION, key))
                    return key
                if (master := master_keys.current()) is None:
                    return None
                made = wrap(master, INSTALLATION, AESGCM.generate_key(256))
                # Another process may store a key at the same time, so the stored one is read again.
                cursor.execute(f"{_STORE} ON CONFLICT (run_id) DO NOTHING", [INSTALLATION, master.id, made])
        raise KeyDamaged(INSTALLATION)

    def _prepare_installation(self) -> None:
        """Read or create the installation's key, in a thread with a connection of its own."""
        try:
            self._of_installation()
        finally:
            connection.close()

    def _expected_here(self) -> set[UUID]:
        """Return the runs whose encrypted content this thread has read without having read their keys."""
        expected: set[UUID] | None = getattr(self._local, "expected", None)
        if expected is None:
            expected = self._local.expected = set()
        return expected

    def _learned(
        self,
        run_id: UUID,
        master_id: str | None,
        wrapped: bytes | None,
        is_encrypted: bool | None,
        is_erased: bool | None = None,
    ) -> _Key | None:
        """Return and cache a run's key from a row of _FIND. Raises KeyDamaged, KeyErased, KeyUnavailable."""
        key = None
        if master_id is not None and wrapped is not None:
            try:
                key = _Key(unwrap(master_keys.find(master_id), run_id, bytes(wrapped)))
            except master_keys.KeyUnavailable as error:
                _complain(run_id, error)
                raise
        elif is_erased is not None:
            raise KeyErased(run_id)
        elif is_encrypted:
            raise KeyDamaged(run_id)
        # a run that doesn't exist yet may still be created with a key, so its missing key isn't cached
        if key is not None or is_encrypted is not None:
            self._keep(run_id, key)
        return key

    def _keep(self, run_id: UUID, key: _Key | None) -> None:
        with self._lock:
            self._known[run_id] = key
            self._known.move_to_end(run_id)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
