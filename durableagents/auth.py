"""How the API knows its callers. Roles and actors live in `ledger.access`, where every app can reach them."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Q, When
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from durableagents.models import ApiKey
from durableagents.people import held
from ledger.access import ROLES, HasRole, actor, know_roles, roles

__all__ = ["ROLES", "ApiKeyAuthentication", "HasRole", "actor", "issue_key", "roles"]

_PREFIX = "da_"
_SHOWN = 10
_STALE = Q(last_used_at__isnull=True) | Q(last_used_at__lt=Now() - timedelta(minutes=1))


def issue_key(user: Any, name: str, *, token: str | None = None, expires_at: datetime | None = None) -> str:
    """A key for `user`; the answer is the only time it can be read.

    A given `token` (the demo keeps its own across restarts) is entered once, however often this is called.
    """
    token = token or _PREFIX + secrets.token_urlsafe(32)
    ApiKey.objects.get_or_create(
        hash=digest(token),
        defaults={"user": user, "name": name, "prefix": token[:_SHOWN], "created_at": Now(), "expires_at": expires_at},
    )
    return token


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer <key>`.

    The work is the same for every token: one digest, one lookup by it. What is looked up is the digest,
    so timing tells nothing about keys that exist, and every refusal reads the same.
    """

    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        scheme, _, token = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        key = (
            ApiKey.objects.select_related("user")
            .annotate(held=held("user_id"), is_noted=Case(When(_STALE, then=False), default=True))
            .filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()))
            .filter(hash=digest(token.strip()), revoked_at__isnull=True, user__is_active=True)
            .first()
        )
        if key is None:
            raise AuthenticationFailed("This API key is unknown, expired or revoked.")
        know_roles(key.user, key.held)
        if not key.is_noted:
            # At most one write a minute and key: a busy integrator must not turn every read into a write.
            ApiKey.objects.filter(_STALE, pk=key.pk).update(last_used_at=Now())
        return key.user, key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="durableagents"'


def digest(token: str | bytes) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(token.encode() if isinstance(token, str) else token).digest()
