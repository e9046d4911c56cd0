"""WebAuthn (level 3) between server and browser: the site, one-time challenges, and browsers' answers."""

# Challenges aren't stored: their terms travel in a signed token and come back with the answer. The attempts table makes
# each challenge usable once; for decisions the stored row does so as well.

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import signing

from durableagents.contrib.accounts.assertions import (
    ALGORITHMS,
    LIVES_SECONDS,
    UNREADABLE,
    about,
    challenge_of,
    text_of,
)
from durableagents.identity import throttle
from ledger.clock import database_now
from ledger.errors import DurableAgentsError

if TYPE_CHECKING:
    from fido2.webauthn import AuthenticationResponse

NAME = "Durable Agents"
MAX_TOKEN, MAX_ANSWER = 4096, 32_768  # limits in characters
_SALT = "durableagents.contrib.accounts.webauthn/1"
# Each challenge can be used once during its whole lifetime.
_once = throttle.Allowance("challenge", limit=1, window_seconds=LIVES_SECONDS)


class PasskeysUnavailable(DurableAgentsError):
    """Browsers don't create passkeys for this installation's address."""

    status, code, title = 409, "passkeys-unavailable", "Passkeys are not available"


class PasskeyTooLate(DurableAgentsError):
    """The challenge is too old or was used. Nothing was done."""

    status, code, title = 409, "passkey-too-late", "Request expired"

    def __init__(self) -> None:
        super().__init__("The passkey request expired or was already used. Nothing was changed. Try again.")


class WrongPasskey(DurableAgentsError):
    """The passkey was refused. Nothing was done."""

    status, code, title = 422, "wrong-passkey", "Passkey rejected"

    def __init__(self, why: str) -> None:
        super().__init__(f"The passkey was rejected: {why}. Nothing was changed.")


@dataclass(frozen=True, slots=True)
class Site:
    """The domain that passkeys are bound to, and the origin whose pages may use them."""

    rp_id: str
    origin: str


def site() -> Site:
    """Return this installation's site. Raises PasskeysUnavailable, which says what to configure."""
    environment = settings.DURABLEAGENTS
    if environment.public_url is None:
        if environment.is_production:
            raise PasskeysUnavailable(
                "Passkeys are bound to the address of this installation, which is not configured: set "
                "DURABLEAGENTS_BASE_URL to its https address (docs/how-to/single-sign-on-and-accounts.md)."
            )
        return Site("localhost", f"http://localhost:{environment.port}")
    url = urlsplit(environment.public_url)
    host = (url.hostname or "").lower()
    if url.scheme != "https" and host != "localhost":
        raise PasskeysUnavailable(
            f"Browsers create passkeys only for https, but DURABLEAGENTS_BASE_URL is {url.scheme}://{host}: serve this "
            "installation by https and set its address."
        )
    if _is_number(host):
        raise PasskeysUnavailable(
            f"Browsers make no passkeys for an address in numbers, and DURABLEAGENTS_BASE_URL names {host}: give this "
            "installation a name and set it."
        )
    domain = environment.passkey_domain or host
    if host != domain and not host.endswith(f".{domain}"):
        raise PasskeysUnavailable(
            f"DURABLEAGENTS_PASSKEY_DOMAIN is {domain}, and {host} of DURABLEAGENTS_BASE_URL is not in it: browsers "
            "refuse that. Set a domain that the host name ends with, or unset it."
        )
    return Site(domain, f"{url.scheme}://{url.netloc.lower()}")


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge. `token` comes back with the answer; `terms` are what the device signs."""

    token: str
    terms: dict[str, Any]

    @property
    def text(self) -> str:
        """Return the challenge in WebAuthn's encoding."""
        return text_of(challenge_of(self.terms))


def draw(what: dict[str, Any]) -> Challenge:
    """Create a challenge for this purpose, valid for five minutes."""
    terms = {**what, "nonce": secrets.token_urlsafe(32), "at": database_now().isoformat()}
    return Challenge(signing.dumps(terms, salt=_SALT), terms)


def take(token: str, what: dict[str, Any]) -> dict[str, Any]:
    """Mark a challenge as used and return its terms. Raises PasskeyTooLate, WrongPasskey."""
    try:
        terms = signing.loads(token[:MAX_TOKEN], salt=_SALT)
    except signing.BadSignature:
        raise WrongPasskey("what came back with it is not what this installation gave out") from None
    if about(terms) != what:
        raise WrongPasskey("it was asked for something else")
    age = (database_now() - datetime.fromisoformat(terms["at"])).total_seconds()
    if not 0 <= age <= LIVES_SECONDS:
        raise PasskeyTooLate
    try:
        throttle.count(_once, terms["nonce"])
    except throttle.TooManyAttempts:
        raise PasskeyTooLate from None
    return dict(terms)


def answer_in(text: str) -> dict[str, Any]:
    """Parse the answer of a browser. Raises WrongPasskey."""
    try:
        found = json.loads(text) if len(text) <= MAX_ANSWER else None
        json.dumps(found, ensure_ascii=False).encode()  # JSON allows lone surrogates, which can't be stored elsewhere.
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("response"), dict):
        raise WrongPasskey("what the browser sent of it can't be read")
    return found


def assertion_in(text: str) -> AuthenticationResponse:
    """Parse the answer of a browser to a request to use a passkey. Raises WrongPasskey."""
    from fido2.webauthn import AuthenticationResponse

    try:
        return AuthenticationResponse.from_dict(answer_in(text))
    except UNREADABLE as error:
        raise WrongPasskey("what the browser sent of it can't be read") from error


def verify_registration(answer: dict[str, Any], terms: dict[str, Any], where: Site) -> tuple[bytes, bytes, int]:
    """Verify a registration (§ 7.1). Raises WrongPasskey.

    Returns the passkey's id, public key and signature counter.
    """
    from fido2 import cbor
    from fido2.server import Fido2Server
    from fido2.webauthn import PublicKeyCredentialRpEntity, UserVerificationRequirement

    server = Fido2Server(PublicKeyCredentialRpEntity(name=NAME, id=where.rp_id), verify_origin=where.origin.__eq__)
    state = {"challenge": text_of(challenge_of(terms)), "user_verification": UserVerificationRequirement.REQUIRED}
    try:
        data = server.register_complete(state, answer)
        found = data.credential_data
        if found is None or found.public_key.get(3) not in ALGORITHMS:
            raise ValueError("its kind of key is not taken")
        return bytes(found.credential_id), cbor.encode(dict(found.public_key)), data.counter
    except UNREADABLE as error:
        raise WrongPasskey(f"{error}"[:200].rstrip(".") or "it can't be read") from None
