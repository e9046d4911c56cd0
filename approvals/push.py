"""Encrypt Web Push messages: RFC 8291 over RFC 8188 (aes128gcm). Own code, tested against the RFC's example: libraries
bring an HTTP client, and pushes must go through the SSRF-checked one (notices/chat.py)."""

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

from ledger.errors import DurableAgentsError

# Push services accept at least 4,096 bytes. All messages have one length, to hide the kind of news. The longest has two
# texts (notices/words.py, MOST) of characters that JSON writes as six bytes.
RECORD, LENGTH = 4096, 2560
SALT, SECRET, POINT = 16, 16, 65


class BadKeys(ValueError):
    """The browser's subscription keys are invalid."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A subscription's keys: the device's public key (uncompressed point) and the shared secret."""

    public: bytes
    secret: bytes

    @classmethod
    def read(cls, p256dh: str, auth: str) -> Keys:
        """Parse keys as browsers write them (base64url). Raises BadKeys."""
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
    """Return a push body padded to `length` bytes; `salt`, `own`: by default random. Raises ValueError if too long."""
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


GOOD_SECONDS = 12 * 3600  # RFC 8292 allows a day


class PushUnavailable(DurableAgentsError):
    """This installation has no push key or contact."""

    status, code, title = 409, "push-unavailable", "Push notifications are not set up"


@dataclass(frozen=True, slots=True)
class Key:
    """The installation's VAPID key. Browsers bind subscriptions to `public`."""

    private: ec.EllipticCurvePrivateKey
    public: str


def made() -> str:
    """Return a new private key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def own() -> Key:
    """Return the configured key. Raises PushUnavailable with what to do."""
    path = settings.DURABLEAGENTS.push_key_file
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        raise PushUnavailable(
            "This installation has no key for push services. Create one with `manage.py push_key` "
            "(docs/notifications.md, Phones)."
        ) from None
    except (OSError, ValueError, TypeError):
        raise PushUnavailable(
            "The key in DURABLEAGENTS_PUSH_KEY_FILE can't be read. It must be a P-256 key in PEM."
        ) from None


def is_set() -> bool:
    try:
        return bool(own() and contact())
    except PushUnavailable:
        return False


def contact() -> str:
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
    key, parts = own(), urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now_seconds) + GOOD_SECONDS, "sub": contact()}
    signing = f"{_text({'typ': 'JWT', 'alg': 'ES256'})}.{_text(claims)}"
    r, s = decode_dss_signature(key.private.sign(signing.encode(), ec.ECDSA(SHA256())))
    return f"vapid t={signing}.{_b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}, k={key.public}"


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Key:
    """Read the key; `changed` invalidates the cache. Raises ValueError."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("no P-256 key")
    return Key(key, _b64(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)))


def _text(value: dict[str, object]) -> str:
    return _b64(json.dumps(value, separators=(",", ":")).encode())


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
