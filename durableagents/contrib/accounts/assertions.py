"""Signatures by passkeys (assertions, WebAuthn level 3, § 7.2), verified from the record alone."""

# The challenge is the SHA-256 of the terms in canonical JSON (RFC 8785). The terms include a nonce.

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from typing import Any

from runs.engine.canonical import canonical

LIVES_SECONDS = (
    300  # bytes of a challenge ES256, Ed25519 and RS256 (COSE), which devices support; weaker algorithms are refused.
)
ALGORITHMS = (-7, -8, -257)
# Exceptions that the parsers raise for malformed bytes.
UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    RecursionError,
    NotImplementedError,
    OverflowError,
    struct.error,
)


def about(terms: dict[str, Any]) -> dict[str, Any]:
    """Return the terms without nonce and time."""
    return {name: value for name, value in terms.items() if name not in ("nonce", "at")}


def challenge_of(terms: dict[str, Any]) -> bytes:
    """Return the challenge for the device. Raises ValueError for terms that can't be written as JSON."""
    return hashlib.sha256(canonical(terms)).digest()


def key_digest(public_key: bytes) -> str:
    """Return the digest of a public key, which identifies the passkey in records."""
    return hashlib.sha256(public_key).hexdigest()


def text_of(data: bytes) -> str:
    """Encode bytes as WebAuthn does: base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Signed:
    """An assertion with everything needed to verify it.

    `public_key` is in COSE form, `credential` is the passkey's id.
    """

    terms: dict[str, Any]
    rp_id: str
    origin: str
    credential: str
    public_key: bytes
    authenticator_data: bytes
    client_data: bytes
    signature: bytes

    @property
    def challenge(self) -> bytes:
        return challenge_of(self.terms)

    @property
    def digest(self) -> str:
        """Return the digest of the whole assertion, which the decision's event contains."""
        told = {
            "terms": self.terms,
            "rp_id": self.rp_id,
            "origin": self.origin,
            "credential": self.credential,
            "public_key": text_of(self.public_key),
            "authenticator_data": text_of(self.authenticator_data),
            "client_data": text_of(self.client_data),
            "signature": text_of(self.signature),
        }
        return hashlib.sha256(canonical(told)).hexdigest()

    @property
    def counter(self) -> int:
        """Return the device's signature counter; 0 if it has none."""
        return int.from_bytes(self.authenticator_data[33:37], "big")

    def problem(self) -> str:
        """Return why the assertion is invalid; empty if it is valid."""
        from cryptography.exceptions import InvalidSignature  # Imported here because not every worker has it installed.
        from fido2 import cbor
        from fido2.cose import CoseKey
        from fido2.webauthn import AuthenticatorData, CollectedClientData

        try:
            client, device = CollectedClientData(self.client_data), AuthenticatorData(self.authenticator_data)
            if lacking := _lacking(client, device, self):
                return lacking
            key = CoseKey.parse(_whole(cbor.decode_from(self.public_key)))
            if key.get(3) not in ALGORITHMS:
                return f"it is signed with an algorithm that is not accepted ({key.get(3)})"
            key.verify(self.authenticator_data + hashlib.sha256(self.client_data).digest(), self.signature)
        except InvalidSignature:
            return "its signature is not that of this passkey"
        except UNREADABLE as error:
            return f"it can't be read: {error}"[:200]
        return ""


def _lacking(client: Any, device: Any, signed: Signed) -> str:
    """Return why the assertion is invalid, without checking its signature; empty if nothing is wrong."""
    if client.type != "webauthn.get":
        return "it is no assertion"
    if client.challenge != signed.challenge:
        return "its challenge is not that of its terms"
    if client.origin != signed.origin or client.cross_origin:
        return f"it was made on a page of {str(client.origin)[:100]!a}"
    if device.rp_id_hash != hashlib.sha256(signed.rp_id.encode()).digest():
        return f"it is for a site other than {signed.rp_id}"
    if not device.is_user_present() or not device.is_user_verified():
        return "its device did not verify who held it"
    return ""


def _whole(decoded: tuple[Any, bytes]) -> dict[int, Any]:
    found, rest = decoded
    if rest or not isinstance(found, dict):
        raise ValueError("the public key is not one COSE key")
    return found
