"""Seals and key rotations as signed bytes and as JSON lines. Pure: no Django, no I/O."""

#  leaf    = run id (16 bytes) ‖ seq ‖ hash of that event (32 bytes), ordered by run id
#  message = "durableagents seal 1" ‖ number ‖ time ‖ key ‖ hash of the seal before ‖ Merkle root ‖ number of leaves
#  hash    = sha256( message ‖ Ed25519 signature of message )
#
# Integers are 8 bytes big-endian, time is microseconds since 1970-01-01 UTC, the first seal's `previous` is 32 zero
# bytes. Verification needs no secret.

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from durableagents.contrib.seals.merkle import merkle_root
from ledger.chain import microseconds

VERSION = 1
NO_SEAL = bytes(32)
_SEAL, _ROTATION = b"durableagents seal 1", b"durableagents seal key 1"
_NUMBERS = struct.Struct(">qqq")
_NUMBER = struct.Struct(">q")
_MAX_NUMBER = 2**63 - 1


class Leaf(NamedTuple):
    """A sealed head: the hash of event `seq` of a run."""

    run_id: UUID
    seq: int
    hash: bytes

    @property
    def data(self) -> bytes:
        return self.run_id.bytes + _NUMBER.pack(self.seq) + self.hash


@dataclass(frozen=True, slots=True)
class SealRecord:
    """A seal without its leaves."""

    number: int
    at: datetime
    key: int
    previous: bytes
    root: bytes
    count: int
    signature: bytes = b""

    @property
    def message(self) -> bytes:
        numbers = _NUMBERS.pack(self.number, microseconds(self.at), self.key)
        return _SEAL + numbers + self.previous + self.root + _NUMBER.pack(self.count)

    @property
    def hash(self) -> bytes:
        return sha256(self.message + self.signature).digest()

    def is_signed_by(self, public_key: bytes) -> bool:
        return is_signature(public_key, self.signature, self.message)

    def has_leaves(self, leaves: Sequence[Leaf]) -> bool:
        return len(leaves) == self.count and merkle_root(leaf.data for leaf in leaves) == self.root


def rotation_message(number: int, at: datetime, old_key: bytes, new_key: bytes, reason: str, by: str) -> bytes:
    """Return the message with which the old key names the new one. The first key signs itself, without an old key."""
    texts = sha256(reason.encode()).digest() + sha256(by.encode()).digest()
    return _ROTATION + _NUMBER.pack(number) + _NUMBER.pack(microseconds(at)) + (old_key or NO_SEAL) + new_key + texts


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def is_signature(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the key signed the message. Returns False for a malformed key too."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


# --- JSON lines -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SealLine:
    """A seal in the form that witnesses store: with its leaves and the public key that signed it."""

    seal: SealRecord
    public_key: bytes
    leaves: tuple[Leaf, ...]

    def to_json(self) -> str:
        """Return the JSON line without a line break."""
        seal = self.seal
        return json.dumps(
            {
                "version": VERSION,
                "number": seal.number,
                "at": seal.at.astimezone(UTC).isoformat(timespec="microseconds"),
                "key": seal.key,
                "public_key": self.public_key.hex(),
                "previous": seal.previous.hex(),
                "root": seal.root.hex(),
                "count": seal.count,
                "signature": seal.signature.hex(),
                "leaves": [[str(leaf.run_id), leaf.seq, leaf.hash.hex()] for leaf in self.leaves],
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, line: str | bytes) -> SealLine:
        """Parse a line. Raises ValueError with a text that says what is wrong."""
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON") from None
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
        if values.get("version") != VERSION:
            raise ValueError(f"its version is {values.get('version')!r:.40}; this code reads {VERSION}")
        try:
            at = datetime.fromisoformat(values["at"])
            if at.tzinfo is None:
                raise ValueError("`at` has no time zone")
            seal = SealRecord(
                number=_number(values, "number"),
                at=at,
                key=_number(values, "key"),
                previous=_bytes(values["previous"], 32),
                root=_bytes(values["root"], 32),
                count=_number(values, "count"),
                signature=_bytes(values["signature"], 64),
            )
            leaves = tuple(_leaf(each) for each in values["leaves"])
            return cls(seal, _bytes(values["public_key"], 32), leaves)
        except KeyError as error:
            raise ValueError(f"it has no {error}") from None
        except (TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"a value has the wrong type: {error}"[:200]) from None


def _number(values: dict[str, Any], name: str) -> int:
    value = values[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MAX_NUMBER:
        raise ValueError(f"`{name}` is not a positive number: {value!r:.40}")
    return value


def _bytes(text: str, size: int) -> bytes:
    data = bytes.fromhex(text)
    if len(data) != size:
        raise ValueError(f"a value has {len(data)} bytes instead of {size}")
    return data


def _leaf(values: Sequence[Any]) -> Leaf:
    run_id, seq, link = values
    return Leaf(UUID(run_id), _number({"seq": seq}, "seq"), _bytes(link, 32))
