"""The private key in the data folder, and the record of public keys and rotations."""

# Seals can only be signed with the file. In the database, each public key is signed with the key before it, so someone
# who has only the database can neither make a seal nor add a key.

from __future__ import annotations

import base64
import binascii
import os
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.db import connection, transaction

from durableagents.contrib.seals.models import Seal, SealKey
from durableagents.contrib.seals.records import is_signature, public_bytes, rotation_message
from durableagents.env import EnvironmentProblem, kept_secret, replace_private
from ledger.append import justified
from ledger.clock import database_now

SIZE = 32
# Held until the end of a transaction that adds a seal or a key, so that a second process waits or does nothing.
LOCK = "hashtextextended('seals', 95)"
_FIX = "restore the seal.key from the backups, or copy it from another host of this installation"


class SealKeyProblem(Exception):
    """The key can't be used. The message names the file, the problem and the fix."""


def key_path() -> Path:
    return Path(settings.DURABLEAGENTS.data) / "seal.key"


def next_key_path() -> Path:
    """Return the path of the new key during a rotation, until it is recorded."""
    return key_path().with_name("seal.key.next")


def read_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key (32 bytes, base64url). Raises SealKeyProblem."""
    try:
        text = path.read_text(encoding="ascii").strip()
        seed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except FileNotFoundError:
        raise SealKeyProblem(f"the seals' private key {path} is missing: {_FIX}") from None
    except OSError as error:
        raise SealKeyProblem(f"the seals' private key {path} can't be read: {error.strerror}") from None
    except (UnicodeDecodeError, binascii.Error):
        raise SealKeyProblem(f"{path} contains no key: it is not base64url text; {_FIX}") from None
    if len(seed) != SIZE:
        raise SealKeyProblem(f"{path} holds {len(seed)} bytes, but a seals' key has {SIZE}: {_FIX}")
    return Ed25519PrivateKey.from_private_bytes(seed)


def signing_key() -> tuple[SealKey, Ed25519PrivateKey]:
    """Return the key in use and its private part. The caller must hold `LOCK`.

    If the installation has no seals yet, the first key is created. A key that is missing or wrong is never replaced.
    Raises SealKeyProblem."""
    newest = SealKey.objects.order_by("-number").first()
    if newest is None:
        if Seal.objects.exists():
            raise SealKeyProblem("there are seals, but no public key is recorded: run manage.py seals verify")
        return _first_key()
    path, recorded = key_path(), bytes(newest.public_key)
    upcoming = next_key_path()
    if upcoming.exists() and public_bytes(read_key(upcoming)) == recorded:
        os.replace(upcoming, path)  # a rotation was interrupted right after its commit
    private = read_key(path)
    if public_bytes(private) != recorded:
        raise SealKeyProblem(
            f"{path} is not the private part of seal key {newest.number}, "
            f"whose public key {recorded.hex()} is recorded: {_FIX}"
        )
    return newest, private


def _first_key() -> tuple[SealKey, Ed25519PrivateKey]:
    try:
        kept_secret(key_path(), size=SIZE)
    except EnvironmentProblem as error:
        raise SealKeyProblem(f"the seals' private key can't be made: {error}") from None
    private = read_key(key_path())
    return _recorded(1, database_now(), b"", private, private, "the first key", "system:seals"), private


def _recorded(
    number: int,
    at: datetime,
    old_public: bytes,
    signer: Ed25519PrivateKey,
    new: Ed25519PrivateKey,
    reason: str,
    by: str,
) -> SealKey:
    public = public_bytes(new)
    signature = signer.sign(rotation_message(number, at, old_public, public, reason, by))
    return SealKey.objects.create(
        number=number, public_key=public, made_at=at, reason=reason, by=by, signature=signature
    )


def rotate(reason: str, by: str) -> SealKey:
    """Replace the key.

    The old key signs a record that names the new one. Raises SealKeyProblem, JustificationRequired."""
    reason = justified("Rotating the seals' key", reason)
    upcoming = next_key_path()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        old, private = signing_key()
        upcoming.unlink(missing_ok=True)  # left over from a rotation that was not committed
        kept_secret(upcoming, size=SIZE)
        new = read_key(upcoming)
        key = _recorded(old.number + 1, database_now(), bytes(old.public_key), private, new, reason, by)
    # Done after the commit. If this process ends before that, `signing_key` does it.
    replace_private(key_path(), upcoming.read_text())
    upcoming.unlink(missing_ok=True)
    return key


def sign(message: bytes) -> tuple[SealKey, bytes]:
    """Return the key in use and its signature of a message. Raises SealKeyProblem.

    The message must not begin like the message of a seal or a key."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        key, private = signing_key()
    return key, private.sign(message)


def key_problems(keys: list[SealKey]) -> list[str]:
    """Return the problems of the recorded keys, in their order, and those of the private key."""
    problems, before = [], b""
    for place, key in enumerate(keys, 1):
        if key.number != place:
            problems.append(f"seal key {place} is missing: the next one found is {key.number}")
        public = bytes(key.public_key)
        signer = before or public
        message = rotation_message(key.number, key.made_at, before, public, key.reason, key.by)
        if not is_signature(signer, bytes(key.signature), message):
            whom = f"key {key.number - 1}" if before else "itself"
            problems.append(
                f"seal key {key.number} was not signed by {whom}: no holder of the private key authorised it"
            )
        before = public
    if not keys:
        return problems
    try:
        own = public_bytes(read_key(key_path()))
    except SealKeyProblem as error:
        return [*problems, str(error)]
    if own != before and not next_key_path().exists():
        problems.append(
            f"{key_path()} is not the private part of seal key {keys[-1].number}: the file or the record was replaced"
        )
    return problems
