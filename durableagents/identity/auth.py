"""Authenticate API requests by key or session. Roles and actors of all apps are in `ledger.web.roles`."""

from __future__ import annotations

import hashlib
import json
import secrets
from copy import copy
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from durableagents.identity.people import ACCOUNT, WHO, account
from durableagents.models import ApiKey
from durableagents.protected import KEY
from ledger.acting import acting
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import Forbidden, InvalidInput, NotFound
from ledger.protected import is_authentic
from ledger.web.pressure import optionally
from ledger.web.roles import ROLES, HasRole, actor, roles

__all__ = ["ROLES", "ApiKeyAuthentication", "HasRole", "HeaderSession", "actor", "issue_key", "roles"]

ISSUE_OWN = "durableagents.issue_own_key"
MAX_OWN, MAX_DAYS = 20, 365
_PREFIX = "da_"
_SHOWN_LENGTH = 10
_COLUMNS = [field.attname for field in ApiKey._meta.concrete_fields]
_IS_NOTED = "coalesce(k.last_used_at >= statement_timestamp() - interval '1 minute', false)"
_KEY = ", ".join(f'k."{field.column}"' for field in ApiKey._meta.concrete_fields)
_LOOK_UP = f"""
    SELECT {_IS_NOTED}, {KEY.proof_sql("k")}::text, {_KEY}, {WHO}, {ACCOUNT}
    FROM durableagents_apikey k JOIN auth_user u ON u.id = k.user_id
    WHERE k.hash = %s AND k.revoked_at IS NULL AND u.is_active
      AND (k.expires_at IS NULL OR k.expires_at > statement_timestamp())"""
# At most one write per key and minute, so that reads don't become writes. The write is not synced to disk: if it is
# lost, the next use is recorded instead.
_OUTSIDE = (
    "This API key or its account was changed in the database, outside the application, so it is rejected. "
    "An administrator can find the change with manage.py ledger verify --all."
)
_NOTE = f"""
    UPDATE durableagents_apikey k SET last_used_at = statement_timestamp()
    WHERE k.id = %s AND NOT {_IS_NOTED} AND set_config('synchronous_commit', 'off', true) = 'off'"""


def issue_key(
    user: Any,
    name: str,
    *,
    token: str | None = None,
    expires_at: datetime | None = None,
    budget: dict[str, Any] | None = None,
) -> str:
    """Issue a key for `user` and return it. It can't be read again.

    `budget` is the highest budget that the key may grant to a run. A given `token` (used by the demo) is stored once,
    however often this is called.
    """
    token = token or _PREFIX + secrets.token_urlsafe(32)
    ApiKey.objects.get_or_create(
        hash=digest(token),
        defaults={
            "user": user,
            "name": name,
            "prefix": token[:_SHOWN_LENGTH],
            "created_at": Now(),
            "expires_at": expires_at,
            "budget": budget,
        },
    )
    return token


def issue_own_key(user: User, name: str, *, days: int, by: Actor) -> str:
    """Issue a key for the caller's own account, if an administrator has allowed that.

    Raises Forbidden, InvalidInput.
    """
    if not user.has_perm(ISSUE_OWN):
        raise Forbidden("An administrator must first allow your account or role to create its own keys.")
    name = "".join(sign for sign in name if sign.isprintable()).strip()
    if not name or len(name) > 100:
        raise InvalidInput("Give the key a name of at most 100 characters that says what uses it.")
    if not 1 <= days <= MAX_DAYS:
        raise InvalidInput(f"A key is valid for 1 to {MAX_DAYS} days.")
    with acting(by):
        # Serializes concurrent requests, which together could exceed the limit.
        User.objects.select_for_update().get(pk=user.pk)
        if own_keys(user).count() >= MAX_OWN:
            raise InvalidInput(f"You have {MAX_OWN} valid keys, which is the limit. Revoke one first.")
        return issue_key(user, name, expires_at=database_now() + timedelta(days=days))


def revoke_own_key(user: User, key_id: int, *, by: Actor) -> ApiKey:
    """Revoke a key of the caller's own account.

    Raises NotFound, even for other people's keys and keys that have ended.
    """
    with acting(by):
        key = own_keys(user).select_for_update().filter(pk=key_id).first()
        if key is None:
            raise NotFound("valid key of yours", key_id)
        key.revoked_at = database_now()
        key.save(update_fields=["revoked_at"])
    return key


def own_keys(user: User) -> QuerySet[ApiKey]:
    """Return the account's own valid keys."""
    return ApiKey.objects.filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), user=user, revoked_at__isnull=True
    )


def revoke(keys: QuerySet[ApiKey]) -> int:
    """End these keys in the transaction of the act; return how many ended."""
    found = list(keys.select_for_update())
    for key in found:
        key.revoked_at = database_now()
        key.save(update_fields=["revoked_at"])
    return len(found)


class ApiKeyAuthentication(BaseAuthentication):
    """Authenticate `Authorization: Bearer <key>`.

    Every token costs the same work: one digest and one lookup. So timing doesn't reveal which keys exist, and
    every refusal has the same text.
    """

    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        scheme, _, token = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            # The header contains only a key. A header for a proxy's own scheme has a second word.
            if scheme and not token:
                raise AuthenticationFailed("The header must start with Bearer: `Authorization: Bearer <key>`.")
            return None
        key = _key(digest(token.strip()))
        if key is None:
            raise AuthenticationFailed(
                "This API key is unknown, expired or revoked. Send a valid one as `Authorization: Bearer <key>`."
            )
        return key.user, key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="durableagents"'


class HeaderSession(SessionAuthentication):
    """Authenticate a browser's session, with Django's CSRF token in the header `X-CSRFToken`."""

    def enforce_csrf(self, request: Request) -> None:
        """Check the token without reading the body, so that rights are checked before the body."""
        headers = copy(request._request)
        if headers.method == "POST":
            headers.method = "PUT"  # for a POST, Django looks for the token in the body first
        super().enforce_csrf(Request(headers))


def _key(hash: bytes) -> ApiKey | None:
    """Return the valid key with this digest, with its account and roles; None if there is none.

    Raises AuthenticationFailed if key or account was changed outside the application.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LOOK_UP, [hash])
        row = cursor.fetchone()
        if row is None:
            return None
        is_noted, proof, *columns = row
        key = ApiKey.from_db(DEFAULT_DB_ALIAS, _COLUMNS, columns[: len(_COLUMNS)])
        key.budget = None if key.budget is None else json.loads(key.budget)  # a raw cursor returns JSON as text
        user = account(columns[len(_COLUMNS) :]) if is_authentic(proof) else None
        if user is None:
            raise AuthenticationFailed(_OUTSIDE)
        if not is_noted:
            optionally(lambda: cursor.execute(_NOTE, [key.pk]))
    key.user = user
    return key


def digest(token: str | bytes) -> bytes:
    """Return the digest under which a key is stored."""
    return hashlib.sha256(token.encode() if isinstance(token, str) else token).digest()
