"""Reset passwords by a link, mailed to the account's address or made by an administrator."""

# The links are Django's: each names the account and is valid until it is used, until the next sign-in, or for four
# hours. An administrator's link also names its maker, and becomes invalid when the maker loses the right.

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator, default_token_generator
from django.db import transaction
from django.db.models import Q
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from durableagents.contrib.accounts import links, mail, signed_in
from durableagents.identity import throttle
from durableagents.identity.auth import revoke
from durableagents.identity.password_check import hashed
from durableagents.identity.rights import check_door, is_protected
from durableagents.models import ApiKey
from ledger.acting import acting
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import hold
from ledger.errors import DurableAgentsError, NotFound

# Every request counts, whether the account exists or not.
by_name = throttle.Allowance("reset for a name", limit=3, window_seconds=3600)
by_address = throttle.Allowance("reset from an address", limit=20, window_seconds=3600)
_MAX_ACCOUNTS = 5  # maximum number of accounts with the same e-mail address
_SUBJECT = "A new password"
_BODY = """Someone, probably you, requested a new password for the account {name}.

Choose it here, within four hours:

{link}

Was it not you? Then do nothing: your password stays as it is.
"""


class _HandedOver(PasswordResetTokenGenerator):
    """Generates tokens of reset links that one account made for another.

    A token includes the maker, so the maker can't be changed.
    """

    def __init__(self, maker: int) -> None:
        super().__init__()
        self.maker = maker

    def _make_hash_value(self, user: Any, timestamp: int) -> str:
        return f"{super()._make_hash_value(user, timestamp)} by {self.maker}"


class ClosedAccount(DurableAgentsError):
    status, code, title = 409, "account-closed", "The account is closed"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} may not sign in: open the account first, under Users.")


def ask(given: str, address: str) -> None:
    """Mail a link to the accounts of this name or address. Raises TooManyAttempts, Busy.

    The caller doesn't learn whether there are any.
    """
    given = given.strip().replace("\x00", "")[:254]
    with transaction.atomic():  # in one transaction: if one limit refuses, the others must not count the attempt
        # The rows are locked in this order.
        throttle.count(by_name, given.casefold())
        throttle.count(by_address, throttle.network_of(address))
    mail.later(partial(_write_to, given))


def _write_to(given: str) -> None:
    found = User.objects.filter(Q(email__iexact=given) | Q(username=given), is_active=True).exclude(email="")
    for user in found.order_by("pk")[:_MAX_ACCOUNTS]:
        if user.has_usable_password():
            mail.send(user.email, _SUBJECT, _BODY.format(name=user.username, link=_link(user)))


def make_link(user_id: int, *, by: Actor, justification: str) -> tuple[User, str]:
    """Return a link to hand over, and record it with the reason.

    Raises NotFound, ClosedAccount, Forbidden, JustificationRequired.
    """
    reason = justified("A link for a new password", justification)
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise NotFound("account", user_id)
    if not user.is_active:
        raise ClosedAccount(user.username)
    check_door(user, by.person)
    with transaction.atomic():
        acted("reset_link", by=by, subject=f"user:{user.username}", justification=reason)
    return user, _link(user, by.person or 0)


def _link(user: User, maker: int | None = None) -> str:
    """Return a link.

    `maker` is the account that passes the link on; 0 means no account, None means that the link is mailed.
    """
    said = str(user.pk) if maker is None else f"{user.pk}.{maker}"
    return links.address("reset_set", urlsafe_base64_encode(force_bytes(said)), _tokens(maker).make_token(user))


def _tokens(maker: int | None) -> PasswordResetTokenGenerator:
    return default_token_generator if maker is None else _HandedOver(maker)


def find(whom: str, token: str) -> User:
    """Return the account of a link.

    Raises UnknownLink, even if the link was used or has expired, and EndedLink if its maker lost the right.
    """
    number, maker = _said(whom)
    return _usable(User.objects.filter(pk=number).first(), token, maker)


def set_password(whom: str, token: str, *, password: str, end_keys: bool, address: str) -> int:
    """Set a new password and end all sessions, and the API keys if requested; return how many keys ended.

    Only the first of several concurrent requests succeeds. Raises UnknownLink, EndedLink, Busy.
    """
    find(whom, token)
    kept = hashed(password)
    with transaction.atomic():
        hold()
        number, maker = _said(whom)
        user = _usable(User.objects.select_for_update().filter(pk=number).first(), token, maker)
        with acting(Actor("user", user.username, auth="token", address=address, person=user.pk)):
            user.password = kept
            user.save(update_fields=["password"])
            ended = revoke(ApiKey.objects.filter(user=user, revoked_at__isnull=True)) if end_keys else 0
        signed_in.end_everywhere(user.pk)
    return ended


def _said(whom: str) -> tuple[int, int | None]:
    """Return the account and the maker that a link names. The maker is None if the link was mailed."""
    try:
        number, dot, maker = urlsafe_base64_decode(whom).decode("ascii").partition(".")
    except ValueError as error:  # also catches UnicodeDecodeError
        raise links.UnknownLink from error
    if not all(each.isdecimal() and len(each) < 10 for each in ([number, maker] if dot else [number])):
        raise links.UnknownLink
    return int(number), int(maker) if dot else None


def _usable(user: User | None, token: str, maker: int | None) -> User:
    if user is None or not user.is_active or not _tokens(maker).check_token(user, token):
        raise links.UnknownLink
    if maker and not User.objects.filter(pk=maker, is_superuser=True, is_active=True).exists():
        raise links.EndedLink(
            "ended with the account that made it, or with what they may do. Ask another administrator"
        )
    if maker is not None and is_protected(user, maker):
        raise links.EndedLink(
            "was made by someone else, and two people change rules here by now. Ask for one to your own address, on "
            "the sign-in page"
        )
    return user
