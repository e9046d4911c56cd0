"""Passkeys as second factors: set up, rename, remove and use.

A device verifies its holder each time (finger, face, PIN), so a passkey alone is a complete sign-in.
"""

# The rows are django-allauth's. Each is encrypted for its account, so a forged public key in the database gives no
# access.

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db import IntegrityError, connection

from durableagents.contrib.accounts import factors, webauthn
from durableagents.contrib.accounts.assertions import ALGORITHMS, LIVES_SECONDS, Signed, key_digest, text_of
from durableagents.contrib.accounts.sealing import Adapter, FactorUnreadable, counted, data_of, naming_key, sealed_for
from durableagents.contrib.accounts.webauthn import Challenge, WrongPasskey
from ledger.acting import acting
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from ledger.web.text_safety import is_hidden

PASSKEY = "passkey"
MOST, MAX_NAME = 20, 60
# A device with a signature counter never repeats a value, so a repeated value means that the passkey was copied. Most
# passkeys have no counter.
_USE = """
    UPDATE mfa_authenticator
    SET data = jsonb_set(data, '{sign_count}', to_jsonb(%(count)s::bigint)), last_used_at = clock_timestamp()
    WHERE id = %(id)s AND ((data ->> 'sign_count')::bigint < %(count)s
                           OR ((data ->> 'sign_count')::bigint = 0 AND %(count)s = 0))"""
SIGN_IN, AGAIN, MAKE = "a sign-in", "showing once more who one is", "a new passkey"


class TooManyPasskeys(DurableAgentsError):
    """The account has the maximum number of passkeys."""

    status, code, title = 409, "too-many-passkeys", "Too many passkeys"

    def __init__(self) -> None:
        super().__init__(f"Limit reached: at most {MOST} passkeys. Remove one first.")


@dataclass(frozen=True, slots=True)
class Passkey:
    """A passkey of an account.

    `credential` and `public_key` are empty if its row is unreadable; then it can only be removed.
    """

    pk: int
    name: str
    created_at: datetime
    last_used_at: datetime | None
    credential: str = ""
    public_key: bytes = b""
    rp_id: str = ""


def things(what: str, person: int | None = None) -> dict[str, Any]:
    """Return the terms of a challenge for a purpose other than a decision."""
    return {"v": 1, "what": what, "person": person}


def of_account(user: User) -> list[Passkey]:
    """Return an account's passkeys, oldest first."""
    rows = Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.WEBAUTHN).order_by("pk")
    with sealed_for(user):
        return [_read(row) for row in rows]


def _read(row: Authenticator) -> Passkey:
    """Parse a row. Must be called in a `sealed_for` block."""
    data = row.data if isinstance(row.data, dict) else {}
    plain = (row.pk, str(data.get("name", "")), row.created_at, row.last_used_at)
    try:
        told = json.loads(Adapter().decrypt(data.get("sealed", "")))
        counted(data, "sign_count")
        return Passkey(*plain, credential=told["id"], public_key=bytes.fromhex(told["key"]), rp_id=told["rp_id"])
    except (FactorUnreadable, ValueError, KeyError, TypeError):
        return Passkey(*plain)


# --- setting one up ---------------------------------------------------------------------------------------------------


def to_make(user: User) -> tuple[Challenge, dict[str, Any]]:
    """Return a challenge and the options of the browser's `create`. Raises PasskeysUnavailable, TooManyPasskeys."""
    where, known = webauthn.site(), of_account(user)
    if len(known) >= MOST:
        raise TooManyPasskeys
    challenge = webauthn.draw(things(MAKE, user.pk))
    name = user.get_username()
    return challenge, {
        "rp": {"id": where.rp_id, "name": webauthn.NAME},
        "user": {"id": _handle(user), "name": name, "displayName": name},
        "challenge": challenge.text,
        "pubKeyCredParams": [{"type": "public-key", "alg": each} for each in ALGORITHMS],
        "timeout": LIVES_SECONDS * 1000,
        "excludeCredentials": _named(known),
        "authenticatorSelection": {
            "residentKey": "required",
            "requireResidentKey": True,
            "userVerification": "required",
        },
        "attestation": "none",
    }


def set_up(user: User, token: str, answer: str, name: str, *, by: Actor) -> list[str]:
    """Save a new passkey.

    If this is the account's first second factor, returns recovery codes, which can't be read again. Raises
    PasskeysUnavailable, PasskeyTooLate, WrongPasskey, TooManyPasskeys, InvalidInput.
    """
    where, name = webauthn.site(), _name(name)
    given = webauthn.answer_in(answer)
    terms = webauthn.take(token, things(MAKE, user.pk))
    credential, public_key, counter = webauthn.verify_registration(given, terms, where)
    with acting(by), sealed_for(user):
        User.objects.select_for_update().get(pk=user.pk)
        if Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.WEBAUTHN).count() >= MOST:
            raise TooManyPasskeys
        is_first = not factors.has_factor(user)
        told = {"id": text_of(credential), "key": public_key.hex(), "rp_id": where.rp_id}
        data = {
            "name": name,
            "id": _digest(told["id"]),
            "key": key_digest(public_key),
            "sign_count": counter,
            "sealed": Adapter().encrypt(json.dumps(told)),
        }
        try:
            Authenticator.objects.create(user_id=user.pk, type=Authenticator.Type.WEBAUTHN, data=data)
        except IntegrityError:
            raise WrongPasskey("this passkey is already set up") from None
        return factors.new_codes(user) if is_first else []


def rename(user: User, pk: int, name: str, *, by: Actor) -> None:
    """Rename a passkey. Raises NotFound, InvalidInput, FactorUnreadable."""
    name = _name(name)
    with acting(by):
        row = _own(user, pk)
        row.data = {**data_of(row), "name": name}
        row.save(update_fields=["data"])


def take_away(user: User, pk: int, *, by: Actor) -> None:
    """Remove a passkey, and the recovery codes if it was the last factor. Raises NotFound."""
    with acting(by):
        _own(user, pk).delete()
        factors.drop_codes_without_factor(user)


def _own(user: User, pk: int) -> Authenticator:
    rows = Authenticator.objects.select_for_update().filter(user_id=user.pk, type=Authenticator.Type.WEBAUTHN, pk=pk)
    found = rows.first()
    if found is None:
        raise NotFound("passkey", pk)
    return found


def _name(text: str) -> str:
    name = " ".join(text.split())
    problem = "is missing" if not name else "has characters that nobody sees" if any(map(is_hidden, name)) else ""
    problem = problem or ("is too long" if len(name) > MAX_NAME else "")
    if problem:
        fix = f"up to {MAX_NAME} letters, such as: my phone"
        raise InvalidInput(f"The name {problem}.", errors=[{"field": "name", "problem": problem, "fix": fix}])
    return name


def button_data(challenge: Challenge, options: dict[str, Any]) -> dict[str, str]:
    """Return the data that a page's button passes to its script (static/js/passkeys.js)."""
    return {"token": challenge.token, "options": json.dumps(options), "origin": webauthn.site().origin}


# --- using one --------------------------------------------------------------------------------------------------------


def to_use(what: dict[str, Any], user: User | None = None) -> tuple[Challenge, dict[str, Any]]:
    """Return a challenge and the options of the browser's `get`. Raises PasskeysUnavailable.

    The options allow the account's passkeys; without an account, any passkey.
    """
    where, challenge = webauthn.site(), webauthn.draw(what)
    return challenge, {
        "rpId": where.rp_id,
        "challenge": challenge.text,
        "timeout": LIVES_SECONDS * 1000,
        "userVerification": "required",
        "allowCredentials": [] if user is None else _named(_good_here(user, where.rp_id)),
    }


def is_usable(user: User) -> bool:
    """Return whether the account has a passkey for this installation's address."""
    try:
        return bool(_good_here(user, webauthn.site().rp_id))
    except webauthn.PasskeysUnavailable:
        return False


def check(user: User, token: str, answer: str, what: dict[str, Any]) -> Signed:
    """Return the verified signature of one of the account's passkeys.

    Raises PasskeysUnavailable, PasskeyTooLate, WrongPasskey.
    """
    where, given = webauthn.site(), webauthn.assertion_in(answer)
    terms = webauthn.take(token, what)
    passkey = next((one for one in _good_here(user, where.rp_id) if one.credential == given.id), None)
    if passkey is None:
        raise WrongPasskey("it is none of this account's")
    signed = Signed(
        terms=terms,
        rp_id=where.rp_id,
        origin=where.origin,
        credential=passkey.credential,
        public_key=passkey.public_key,
        authenticator_data=bytes(given.response.authenticator_data),
        client_data=bytes(given.response.client_data),
        signature=given.response.signature,
    )
    if problem := signed.problem():
        raise WrongPasskey(problem)
    with connection.cursor() as cursor:
        cursor.execute(_USE, {"id": passkey.pk, "count": signed.counter})
        if cursor.rowcount != 1:
            raise WrongPasskey("its device has counted back, as a copy of it would")
    return signed


def who_signs_in(answer: str) -> User:
    """Return the account that an answer's passkey belongs to, before verification. Raises WrongPasskey."""
    given = webauthn.assertion_in(answer)
    row = (
        Authenticator.objects.select_related("user")
        .filter(type=Authenticator.Type.WEBAUTHN, data__id=_digest(given.id), user__is_active=True)
        .first()
    )
    if row is None:
        raise WrongPasskey("no account here has it")
    user: User = row.user
    handle = given.response.user_handle
    if handle and not hmac.compare_digest(text_of(handle), _handle(user)):
        raise WrongPasskey("it was made for another account")
    return user


def _good_here(user: User, rp_id: str) -> list[Passkey]:
    return [one for one in of_account(user) if one.credential and one.rp_id == rp_id]


def _named(passkeys: list[Passkey]) -> list[dict[str, str]]:
    return [{"type": "public-key", "id": one.credential} for one in passkeys if one.credential]


def _digest(credential: str) -> str:
    return hashlib.sha256(credential.encode()).hexdigest()


def _handle(user: User) -> str:
    """Return the opaque handle under which devices know the account."""
    return text_of(hmac.digest(naming_key(), b"passkey of account " + str(user.pk).encode(), "sha256"))
