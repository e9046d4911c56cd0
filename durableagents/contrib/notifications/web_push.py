"""Web Push (RFC 8030): encryption of messages (RFC 8291 over RFC 8188, aes128gcm) and this installation's key
(VAPID, RFC 8292)."""

# Own code, tested against the RFC's example: libraries bring an HTTP client, and messages must go through the one that
# checks addresses (durableagents/outgoing/http.py).

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from django.conf import settings

from durableagents.env import kept_secret
from ledger.errors import DurableAgentsError

# Push services accept at least 4,096 bytes. All messages have one length, to hide the kind of news. The longest has two
# texts (texts.py, MAX_LENGTH) of characters that JSON writes as six bytes.
RECORD_SIZE, PADDED_LENGTH = 4096, 2560
SALT_LENGTH, SECRET_LENGTH, POINT_LENGTH = 16, 16, 65
TOKEN_SECONDS = 12 * 3600  # RFC 8292 allows a day


class PushUnavailable(DurableAgentsError):
    """This installation has no push key or contact."""

    status, code, title = 409, "push-unavailable", "Push notifications are not set up"


@dataclass(frozen=True, slots=True)
class SubscriptionKeys:
    """A subscription's keys: the device's public key (uncompressed point) and the shared secret."""

    public: bytes
    secret: bytes

    @classmethod
    def parse(cls, p256dh: str, auth: str) -> SubscriptionKeys:
        """Parse keys as browsers write them (base64url). Raises ValueError."""
        public, secret = _decode(p256dh), _decode(auth)
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
        if len(public) != POINT_LENGTH or len(secret) != SECRET_LENGTH:
            raise ValueError("no key of a subscription")
        return cls(public, secret)


@dataclass(frozen=True, slots=True)
class VapidKey:
    """The installation's key. Browsers bind subscriptions to `public`."""

    private: ec.EllipticCurvePrivateKey
    public: str


def encrypt(
    message: bytes,
    keys: SubscriptionKeys,
    *,
    salt: bytes = b"",
    own: ec.EllipticCurvePrivateKey | None = None,
    length: int = PADDED_LENGTH,
) -> bytes:
    """Return a push body padded to `length` bytes; `salt`, `own`: by default random. Raises ValueError if too long."""
    salt, own = salt or secrets.token_bytes(SALT_LENGTH), own or ec.generate_private_key(ec.SECP256R1())
    if len(message) > RECORD_SIZE - 17:
        raise ValueError("the message is too long for one record")
    public = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    shared = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), keys.public))
    ikm = _derive(shared, keys.secret, b"WebPush: info\0" + keys.public + public, 32)
    key = _derive(ikm, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(ikm, salt, b"Content-Encoding: nonce\0", 12)
    padded = message + b"\x02" + bytes(max(0, length - len(message)))
    encrypted = AESGCM(key).encrypt(nonce, padded, None)
    return salt + RECORD_SIZE.to_bytes(4, "big") + bytes([len(public)]) + public + encrypted


def create_key() -> None:
    """Create the private key (PEM) in its configured file, unless that exists."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode().strip()
    kept_secret(settings.DURABLEAGENTS.push_key_file, make=lambda _: pem)


def read_key() -> VapidKey:
    """Return the configured key. Raises PushUnavailable, which says what to do."""
    path = settings.DURABLEAGENTS.push_key_file
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        raise PushUnavailable(
            "This installation has no key for push services. Create one with `manage.py push_key` "
            "(docs/how-to/notifications.md)."
        ) from None
    except (OSError, ValueError, TypeError):
        raise PushUnavailable(
            "The key in DURABLEAGENTS_PUSH_KEY_FILE can't be read. It must be a P-256 key in PEM."
        ) from None


def is_available() -> bool:
    try:
        return bool(read_key() and find_contact())
    except PushUnavailable:
        return False


def find_contact() -> str:
    """Return the operator's contact for push services. Raises PushUnavailable."""
    environment = settings.DURABLEAGENTS
    if environment.push_contact:
        return environment.push_contact
    if environment.email_from:
        return f"mailto:{environment.email_from}"
    if environment.base_url.startswith("https://"):
        return environment.base_url
    if environment.is_production:
        raise PushUnavailable(
            "Push services require a contact. Set DURABLEAGENTS_PUSH_CONTACT to mailto: and an address."
        )
    return "mailto:nobody@localhost"


def authorization(endpoint: str, now_seconds: float) -> str:
    """Return the VAPID header for an endpoint. Raises PushUnavailable."""
    key, parts = read_key(), urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now_seconds) + TOKEN_SECONDS, "sub": find_contact()}
    signing = f"{_encode_json({'typ': 'JWT', 'alg': 'ES256'})}.{_encode_json(claims)}"
    r, s = decode_dss_signature(key.private.sign(signing.encode(), ec.ECDSA(SHA256())))
    return f"vapid t={signing}.{_encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}, k={key.public}"


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> VapidKey:
    """Read the key; `changed` invalidates the cache. Raises ValueError."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("no P-256 key")
    return VapidKey(key, _encode(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)))


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=salt, info=info).derive(secret)


def _decode(text: str) -> bytes:
    if len(text) > 200 or not text.isascii():
        raise ValueError("too long")
    return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encode_json(value: dict[str, object]) -> str:
    return _encode(json.dumps(value, separators=(",", ":")).encode())
