"""Second factors: TOTP codes (RFC 6238) and ten one-time recovery codes. Passkeys are in passkeys.py."""

# django-allauth provides the table and the recovery codes; the library cryptography computes TOTP. The last used step
# is stored with the factor and advanced in one statement, because allauth remembers a used code for only 30 of the 90
# seconds in which it is valid.

from __future__ import annotations

import base64
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db import IntegrityError, connection

from durableagents.contrib.accounts.sealing import Adapter, FactorUnreadable, counted, data_of, sealed_for
from durableagents.identity import throttle
from ledger.acting import acting
from ledger.actors import Actor
from ledger.append import justified
from ledger.errors import DurableAgentsError

STEP_SECONDS, AROUND, DIGITS, RECOVERY_DIGITS = 30, 1, 6, 8
# Somebody who tries codes already knows the password. At any time, three of a million codes are valid, and ten recovery
# codes of a hundred million. The two are counted separately, so that guessing device codes doesn't block recovery.
tries = throttle.Allowance("second factor", limit=5, window_seconds=900)
recovery_tries = throttle.Allowance("recovery code", limit=5, window_seconds=900)
_USE = """
    UPDATE mfa_authenticator
    SET data = jsonb_set(data, '{used_step}', to_jsonb(%(step)s::bigint)), last_used_at = clock_timestamp()
    WHERE id = %(id)s AND coalesce((data ->> 'used_step')::bigint, 0) < %(step)s"""
TOTP, RECOVERY_CODE = "totp", "recovery_code"
_FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)  # a recovery code can be used instead


class WrongCode(DurableAgentsError):
    """The code is wrong. Nothing was changed."""

    status, code, title = 422, "wrong-code", "Wrong code"

    told = "The code is wrong, already used or expired. Wait for the next one, and check your device's clock."

    def __init__(self) -> None:
        super().__init__(self.told)


class NoCode(WrongCode):
    """The input doesn't look like a code from an authenticator app, so it doesn't count as a guess."""

    told = "Enter the six-digit code from your app."


class NoCodeOfEither(NoCode):
    """The input looks like neither a code from an authenticator app nor a recovery code."""

    told = "Enter the six-digit code from your app, or an eight-digit recovery code."


class FactorExists(DurableAgentsError):
    """The account already has a second factor."""

    status, code, title = 409, "second-factor-exists", "Second factor exists"

    def __init__(self) -> None:
        super().__init__("This account already has a second factor. Turn it off first.")


class NoFactor(DurableAgentsError):
    """The account has no second factor."""

    status, code, title = 409, "no-second-factor", "No second factor"

    def __init__(self) -> None:
        super().__init__("This account has no second factor.")


@dataclass(frozen=True, slots=True)
class Draft:
    """A factor that is being set up. `secret` is for the device; `sealed` is the encrypted form for the session."""

    secret: str
    sealed: str
    picture: str  # the QR code, as a data: URL with an SVG

    @property
    def spelt(self) -> str:
        """Return the secret in groups of letters, for typing."""
        return " ".join(self.secret[at : at + 4] for at in range(0, len(self.secret), 4))


def draft(user: User, sealed: str = "") -> Draft:
    """Return a new secret, or the one that the session already has. Raises FactorUnreadable."""
    adapter = Adapter()
    with sealed_for(user):
        secret = adapter.decrypt(sealed) if sealed else base64.b32encode(secrets.token_bytes(20)).decode()
        sealed = sealed or adapter.encrypt(secret)
        svg = adapter.build_totp_svg(adapter.build_totp_url(user, secret))
    return Draft(secret, sealed, "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode())


def has_factor(user: User) -> bool:
    """Return whether the account has a second factor: a device or a passkey."""
    return Authenticator.objects.filter(user_id=user.pk, type__in=_FACTORS).exists()


def has_device(user: User) -> bool:
    """Return whether the account has an authenticator app."""
    return Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.TOTP).exists()


def of_account(user: User) -> tuple[Authenticator | None, int]:
    """Return the account's device and how many recovery codes are left. Raises FactorUnreadable."""
    found = {one.type: one for one in Authenticator.objects.filter(user_id=user.pk)}
    codes = found.get(Authenticator.Type.RECOVERY_CODES)
    if codes is None:
        return found.get(Authenticator.Type.TOTP), 0
    with sealed_for(user):
        return found.get(Authenticator.Type.TOTP), len(_readable(codes).get_unused_codes())


def set_up(user: User, sealed: str, code: str, *, by: Actor) -> list[str]:
    """Set up the device that gave this code; return the recovery codes, which can't be read again.

    Raises NoCode (which doesn't count as an attempt), WrongCode, FactorExists, FactorUnreadable, TooManyAttempts.
    """
    code = _plain(code)
    if not (code.isascii() and code.isdecimal() and len(code) == DIGITS):
        raise NoCode
    throttle.count(tries, str(user.pk))
    with sealed_for(user):
        secret = Adapter().decrypt(sealed)
        step = _step_of(secret, code)
        if step is None:
            raise WrongCode
        try:
            with acting(by):
                data = {"secret": Adapter().encrypt(secret), "used_step": step}
                Authenticator.objects.create(user_id=user.pk, type=Authenticator.Type.TOTP, data=data)
                codes = new_codes(user)
        except IntegrityError:
            raise FactorExists from None
    # Earlier guesses were about secrets that were replaced. For an account with a factor, FactorExists was raised
    # above, so nobody can clear its attempts.
    throttle.clear(tries, str(user.pk))
    throttle.clear(recovery_tries, str(user.pk))
    return codes


def renew_codes(user: User, *, by: Actor) -> list[str]:
    """Replace the recovery codes with ten new ones. Raises NoFactor."""
    with acting(by), sealed_for(user):
        if not Authenticator.objects.select_for_update().filter(user_id=user.pk, type__in=_FACTORS).exists():
            raise NoFactor
        return new_codes(user)


def take_away(user: User, *, by: Actor, reason: str = "") -> None:
    """Remove all second factors and codes of an account. Raises NoFactor, JustificationRequired.

    For another person's account a reason is required.
    """
    if by.person != user.pk or reason:
        reason = justified("Removing a second factor", reason)
    with acting(by, reason):
        if not Authenticator.objects.filter(user_id=user.pk).delete()[0]:
            raise NoFactor


def take_device_away(user: User, *, by: Actor) -> None:
    """Remove the person's own authenticator app, but keep the passkeys. Raises NoFactor."""
    with acting(by):
        if not Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.TOTP).delete()[0]:
            raise NoFactor
        drop_codes_without_factor(user)


def drop_codes_without_factor(user: User) -> None:
    """Delete the recovery codes of an account without factors. Called in the transaction of the act."""
    if not has_factor(user):
        Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.RECOVERY_CODES).delete()


def check(user: User, code: str, *, by: Actor) -> str:
    """Use a code, and return its kind.

    Raises NoCodeOfEither (not counted as an attempt), WrongCode, TooManyAttempts (before the code is compared),
    FactorUnreadable.
    """
    code = _plain(code)
    if not (code.isascii() and code.isdecimal() and len(code) in (DIGITS, RECOVERY_DIGITS)):
        raise NoCodeOfEither
    is_recovery = len(code) == RECOVERY_DIGITS
    allowance = recovery_tries if is_recovery else tries
    throttle.count(allowance, str(user.pk))
    with sealed_for(user):
        is_right = _use_recovery_code(user, code, by) if is_recovery else _use_totp(user, code)
    if not is_right:
        raise WrongCode
    throttle.forgive(allowance, str(user.pk))
    return RECOVERY_CODE if is_recovery else TOTP


def _plain(code: str) -> str:
    return "".join(code.split()).replace("-", "")[:40]


def _use_totp(user: User, code: str) -> bool:
    factor = Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.TOTP).first()
    if factor is None:
        return False
    data = data_of(factor)
    counted(data, "used_step", default=0)
    step = _step_of(Adapter().decrypt(data.get("secret", "")), code)
    if step is None:
        return False
    with connection.cursor() as cursor:
        # If a code is used twice at the same time, only one use advances the step.
        cursor.execute(_USE, {"id": factor.pk, "step": step})
        return cursor.rowcount == 1


def _use_recovery_code(user: User, code: str, by: Actor) -> bool:
    codes = Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.RECOVERY_CODES).first()
    if codes is None:
        return False
    with acting(by):
        try:
            return bool(_readable(codes).validate_code(code))
        except Authenticator.DoesNotExist:
            return False  # the factor was removed meanwhile


def _readable(row: Authenticator) -> Any:
    """Return a row's recovery codes for django-allauth, which itself doesn't validate them. Raises FactorUnreadable."""
    data = data_of(row)
    counted(data, "used_mask")
    if "seed" not in data or "migrated_codes" in data:
        raise FactorUnreadable
    return row.wrap()


def _step_of(secret: str, code: str) -> int | None:
    """Return the time step that a code belongs to, at most one step from the current one; None if invalid."""
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.hazmat.primitives.twofactor.hotp import HOTP

    device = HOTP(base64.b32decode(secret), DIGITS, SHA1())
    now, found = int(now_seconds()) // STEP_SECONDS, None
    for step in range(now - AROUND, now + AROUND + 1):
        if hmac.compare_digest(device.generate(step), code.encode("utf-8", "replace")):
            found = step
    return found


def now_seconds() -> float:
    """Return this host's time. A device computes codes by its own clock."""
    return time.time()


def new_codes(user: User) -> list[str]:
    """Replace the recovery codes. Must be called in the transaction of the act, in a `sealed_for` block."""
    Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.RECOVERY_CODES).delete()
    codes = Authenticator(type=Authenticator.Type.RECOVERY_CODES).wrap()
    return list(codes.activate(user).generate_codes())
