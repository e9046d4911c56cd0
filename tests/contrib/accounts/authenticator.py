"""A software authenticator with faults, written by the standard independently of the library under test."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

UP, UV, AT = 0x01, 0x04, 0x40


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def cose(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public key as CBOR: {1: 2, 3: -7, -1: 1, -2: x, -3: y}."""
    numbers = key.public_key().public_numbers()
    x, y = numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")
    return b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20" + x + b"\x22\x58\x20" + y


@dataclass
class Device:
    """One passkey on one device. `lies` replaces parts of a correct answer."""

    origin: str = "http://localhost:8000"
    rp_id: str = "localhost"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    handle: str = ""
    counter: int = 0
    counts: bool = False
    verifies: bool = True
    is_touched: bool = True

    @property
    def id(self) -> str:
        return b64(self.credential)

    def client_data(self, kind: str, drawn: str, **lies: Any) -> bytes:
        fields = {"type": kind, "challenge": drawn, "origin": self.origin, "crossOrigin": False} | lies
        return json.dumps(fields, separators=(",", ":")).encode()

    def data(self, more: bytes = b"", flags: int = 0) -> bytes:
        if self.counts:
            self.counter += 1
        shown = (UP if self.is_touched else 0) | (UV if self.verifies else 0) | flags
        return hashlib.sha256(self.rp_id.encode()).digest() + bytes([shown]) + self.counter.to_bytes(4, "big") + more

    def make(self, options: dict[str, Any], **lies: Any) -> str:
        self.handle = options["user"]["id"]
        attested = bytes(16) + len(self.credential).to_bytes(2, "big") + self.credential + cose(self.key)
        data = self.data(attested, AT)
        found = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59" + len(data).to_bytes(2, "big") + data
        client = self.client_data("webauthn.create", options["challenge"], **lies)
        response = {"clientDataJSON": b64(client), "attestationObject": b64(found)}
        return self._answer(response)

    def sign(self, options: dict[str, Any], **lies: Any) -> str:
        client, data = self.client_data("webauthn.get", options["challenge"], **lies), self.data()
        signature = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        return self._answer(
            {
                "clientDataJSON": b64(client),
                "authenticatorData": b64(data),
                "signature": b64(signature),
                "userHandle": self.handle,
            }
        )

    def _answer(self, response: dict[str, str]) -> str:
        return json.dumps(
            {
                "id": self.id,
                "rawId": self.id,
                "type": "public-key",
                "response": response,
                "clientExtensionResults": {},
            }
        )
