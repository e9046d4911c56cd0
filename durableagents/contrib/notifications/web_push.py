"""Web Push (RFC 8030): encrypted messages (RFC 8291) and this installation's key (VAPID, RFC 8292)."""

# http-ece and py-vapid are the libraries that pywebpush consists of. Its HTTP client is not used, because messages must
# be sent by ours, which checks addresses (durableagents/outgoing/http.py).

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from django.conf import settings
from py_vapid import Vapid02

from durableagents.env import kept_secret
from ledger.errors import DurableAgentsError

# Push services accept at least 4,096 bytes. All messages are padded to the same length, to hide their kind. The longest
# message has two texts (texts.py, MAX_LENGTH) in which every character takes six bytes in JSON. JSON ignores the spaces
# used for padding.
PADDED_LENGTH = 2560
SECRET_LENGTH, POINT_LENGTH = 16, 65
TOKEN_SECONDS = 12 * 3600  # RFC 8292 allows up to a day


class PushUnavailable(DurableAgentsError):
    """This installation has no push key, or no contact address for push services."""

    status, code, title = 409, "push-unavailable", "Push notifications are not set up"


@dataclass(frozen=True, slots=True)
class SubscriptionKeys:
    """The keys of a subscription: the device's public key (an uncompressed point) and the shared secret."""

    public: bytes
    secret: bytes

    @classmethod
    def parse(cls, p256dh: str, auth: str) -> SubscriptionKeys:
        """Parse keys in the form that browsers use (base64url). Raises ValueError."""
        public, secret = _decode(p256dh), _decode(auth)
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
        if len(public) != POINT_LENGTH or len(secret) != SECRET_LENGTH:
            raise ValueError("not the key of a subscription")
        return cls(public, secret)


@dataclass(frozen=True, slots=True)
class VapidKey:
    """This installation's key. Subscriptions in browsers are bound to `public`."""

    private: ec.EllipticCurvePrivateKey
    public: str


def encrypt(message: bytes, keys: SubscriptionKeys) -> bytes:
    """Return the body of a push: `message` (JSON), padded with spaces and encrypted for the device."""
    return http_ece.encrypt(
        message.ljust(PADDED_LENGTH),
        salt=os.urandom(SECRET_LENGTH),
        private_key=ec.generate_private_key(ec.SECP256R1()),
        dh=keys.public,
        auth_secret=keys.secret,
        version="aes128gcm",
    )


def create_key() -> None:
    """Create the private key (PEM) in its configured file, unless the file exists."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode().strip()
    kept_secret(settings.DURABLEAGENTS.push_key_file, make=lambda _: pem)


def read_key() -> VapidKey:
    """Return the configured key. Raises PushUnavailable with a text that says what to do."""
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
    """Return the operator's contact address for push services. Raises PushUnavailable."""
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
    """Return the VAPID header for requests to an endpoint. Raises PushUnavailable."""
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now_seconds) + TOKEN_SECONDS, "sub": find_contact()}
    # The strict check of the library would refuse a contact address with a port.
    return Vapid02(read_key().private, conf={"no-strict": True}).sign(claims)["Authorization"]


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> VapidKey:
    """Read the key. `changed` is the file's modification time, part of the cache key. Raises ValueError."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("no P-256 key")
    return VapidKey(key, _encode(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)))


def _decode(text: str) -> bytes:
    if len(text) > 200 or not text.isascii():
        raise ValueError("too long")
    return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
