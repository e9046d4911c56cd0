"""A message for one device, which the push service between carries and can't read: RFC 8291 over RFC 8188 (aes128gcm).

Written here on `cryptography`, in thirty lines and held to the RFC's own example: the libraries for it bring an HTTP
client along, and a push has to go out by the one that judges where it leads (notices/chat.py).
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# A push service takes 4,096 bytes at least. All messages are of one length, or it would tell the kinds of news apart.
# The longest has two texts (notices/words.py, MOST) all of signs that JSON writes as six bytes.
RECORD, LENGTH = 4096, 2560
SALT, SECRET, POINT = 16, 16, 65


class BadKeys(ValueError):
    """What a browser gave is no key of a subscription."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Of one subscription: its device's public key (uncompressed point) and the secret that it shares with us."""

    public: bytes
    secret: bytes

    @classmethod
    def read(cls, p256dh: str, auth: str) -> Keys:
        """As browsers write them (base64url). Raises BadKeys."""
        try:
            public, secret = _decoded(p256dh), _decoded(auth)
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
        except ValueError:
            raise BadKeys("no key of a subscription") from None
        if len(public) != POINT or len(secret) != SECRET:
            raise BadKeys("no key of a subscription")
        return cls(public, secret)


def _decoded(text: str) -> bytes:
    if len(text) > 200 or not text.isascii():
        raise ValueError("too long")
    return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


def encrypted(
    message: bytes,
    keys: Keys,
    *,
    salt: bytes = b"",
    own: ec.EllipticCurvePrivateKey | None = None,
    length: int = LENGTH,
) -> bytes:
    """The body of a push. `salt` and `own` are drawn for each message; `length` is what it is filled up to, in bytes.
    Raises ValueError for a message that is too long."""
    salt, own = salt or secrets.token_bytes(SALT), own or ec.generate_private_key(ec.SECP256R1())
    if len(message) > RECORD - 17:
        raise ValueError("the message is too long for one record")
    mine = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    shared = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), keys.public))
    ikm = _derived(shared, keys.secret, b"WebPush: info\0" + keys.public + mine, 32)
    key = _derived(ikm, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(ikm, salt, b"Content-Encoding: nonce\0", 12)
    padded = message + b"\x02" + bytes(max(0, length - len(message)))
    sealed = AESGCM(key).encrypt(nonce, padded, None)
    return salt + RECORD.to_bytes(4, "big") + bytes([len(mine)]) + mine + sealed


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=salt, info=info).derive(secret)
