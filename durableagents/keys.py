"""Check that the master key is the one this database was used with.

Recorded digests and encrypted secrets depend on it, so a process with another key must not start.
"""

# The database has a proof of the key from a random salt, made at first use; the proof reveals nothing about the 256
# random bits.

from __future__ import annotations

import hmac
import json
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import connection

from ledger.codec import unpack
from runs.engine.canonical import Hasher
from runs.journal.digests import hasher_of

_SHORTEST = 32
_IS_MIGRATED = "SELECT to_regclass('durableagents_masterkey') IS NOT NULL"
_STORED = "SELECT salt, proof FROM durableagents_masterkey"
_STORE = """
INSERT INTO durableagents_masterkey (id, salt, proof, stored_at) VALUES (1, %s, %s, clock_timestamp())
ON CONFLICT (id) DO NOTHING"""
# Recorded digests of arguments. Recorded digests prove the key even in databases older than the stored proof.
_WITNESSES = """
SELECT e.clear, e.sealed FROM (SELECT id FROM runs_run ORDER BY created_at DESC LIMIT 200) AS r
CROSS JOIN LATERAL (
    SELECT clear, sealed FROM ledger_event
    WHERE run_id = r.id AND kind = 'ToolInvoked' AND sealed IS NOT NULL LIMIT 1) AS e
LIMIT 5"""


def refusal() -> str | None:
    """Return in one line why this process must not serve with its key; None if it may.

    Raises django.db.Error if unknown.
    """
    path = Path(settings.DURABLEAGENTS_MASTER_KEY_FILE)
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        return f"cannot read the master key {path}: {error.strerror}"
    if len(key) < _SHORTEST:
        return f"{path} contains no master key (it has less than {_SHORTEST} bytes): restore the file from your backup"
    try:
        return None if _fits(key) else _refused(path)
    finally:
        connection.close()


def _refused(path: Path) -> str:
    return (
        f"the master key in {path} is not the one that this database was used with: restore the file from your backup,"
        " or copy it from a host that has it (docs/how-to/back-up-and-restore.md)"
    )


def _fits(key: bytes) -> bool:
    """Return whether the key matches the stored proof.

    If there is no proof yet, it is stored, unless recorded calls contradict the key.
    """
    with connection.cursor() as cursor:
        cursor.execute(_IS_MIGRATED)
        if not cursor.fetchone()[0]:
            return True  # before `migrate` there is nothing to compare
        cursor.execute(_STORED)
        stored = cursor.fetchone()
        if stored is None:
            cursor.execute(_WITNESSES)
            if not _agrees(hasher_of(key), cursor.fetchall()):
                return False
            salt = secrets.token_bytes(16)
            cursor.execute(_STORE, [salt, _proof(key, salt)])
            cursor.execute(_STORED)
            stored = cursor.fetchone()
    salt, proof = map(bytes, stored)
    return hmac.compare_digest(_proof(key, salt), proof)


def _agrees(hasher: Hasher, rows: list[tuple[bytes, bytes]]) -> bool:
    """Return whether the digests of recorded calls match this key; True if there are none."""
    fits = []
    for clear, packed in rows:
        metadata = json.loads(bytes(clear))
        try:
            arguments = (unpack(packed) or {}).get("arguments")
        except ValueError:  # the arguments are encrypted under another key
            fits.append(False)
            continue
        fits.append(hasher({"tool": metadata["tool"], "arguments": arguments}) == metadata["requested_hash"])
    return not fits or any(fits)


def _proof(key: bytes, salt: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=salt, info=b"durableagents/master key check/1").derive(key)
