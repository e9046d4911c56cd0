"""List and end sessions of an account: your own, or as an administrator those of others."""

# A row is written only at sign-in, so no other page has that cost. The last activity is computed from the session's end
# (sessions.py). A row without a session has no effect and is deleted at the account's next sign-in.

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.db import connection, transaction
from django.dispatch import receiver
from django.http import HttpRequest

from durableagents.contrib.accounts.models import SignedIn
from durableagents.identity.browsers import browser_of
from durableagents.identity.session_rows import row_key
from durableagents.identity.sessions import IDLE, MAX_LIFETIME
from durableagents.identity.signals import password_set, session_key_changed, session_key_changing
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.clock import database_now
from ledger.errors import NotFound
from runs import features

MAX_SHOWN = 100
_NAME_LENGTH = 300
# A row contains the key of its session's row (`row_key`) as bytes.
_ROW = "s.session_key = encode(k.key, 'hex')"
_LIST = f"""
    SELECT k.key, k.since, k.address, k.browser, k.auth_hash, s.expire_date
    FROM durableagents_signedin k JOIN django_session s ON {_ROW}
    WHERE k.user_id = %s AND s.expire_date > clock_timestamp()
    ORDER BY s.expire_date DESC, k.key LIMIT {MAX_SHOWN}"""
_FORGET = f"""
    DELETE FROM durableagents_signedin k
    WHERE k.user_id = %s AND NOT EXISTS (SELECT FROM django_session s WHERE {_ROW})"""
# These rows are locked before their sessions, in one order, so that ending a session waits for a concurrent change of
# its key and finds the new key.
_OF = "SELECT key FROM durableagents_signedin WHERE user_id = %s AND key <> %s ORDER BY key FOR UPDATE"
_END = "DELETE FROM django_session WHERE session_key = ANY (%s)"


@dataclass(frozen=True, slots=True)
class Place:
    """One session, for display.

    `seen_at` is accurate to the minute; None means only that the session was used within the last half hour.
    """

    id: str
    since: datetime
    seen_at: datetime | None
    address: str
    browser: str
    is_this: bool


def digest_of(session_key: str | None) -> bytes:
    """Return the key of a session's row in this table."""
    return bytes.fromhex(row_key(session_key))


@receiver(user_logged_in)
def enter(sender: type[User], request: HttpRequest, user: User, **_: object) -> None:
    """Write the row of a new session."""
    if request.session.session_key is None:
        request.session.create()  # the session belonged to another user, whose key would be sent with the response
    name = request.META.get("HTTP_USER_AGENT", "")
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [user.pk])
    SignedIn.objects.update_or_create(
        key=digest_of(request.session.session_key),
        defaults={
            "user": user,
            "since": database_now(),
            "address": request.META.get("REMOTE_ADDR", ""),
            "browser": re.sub(r"[^\x20-\x7e]", "?", name)[:_NAME_LENGTH],
            "auth_hash": _auth_hash(user),
        },
    )


def renew(user: User, request: HttpRequest) -> None:
    """Keep this session after its password was changed, and end all other sessions of the account."""
    end_elsewhere(user.pk, request)
    key = digest_of(request.session.session_key)
    SignedIn.objects.filter(key=key).update(auth_hash=_auth_hash(user))


def end_elsewhere(user_id: int, request: HttpRequest) -> int:
    """End the account's other sessions; return how many."""
    ended = end_all(user_id, but=request.session.session_key)
    _tell_ended(user_id, request)
    return ended


def end_for(user_id: int, request: HttpRequest) -> None:
    """End the sessions of an account that lost a way to sign in, except the person's own current session."""
    if user_id == request.user.pk:
        end_elsewhere(user_id, request)
    else:
        end_everywhere(user_id)


def end_everywhere(user_id: int) -> int:
    """End all sessions of the account; return how many."""
    ended = end_all(user_id)
    _tell_ended(user_id, None)
    return ended


def _tell_ended(user_id: int, request: HttpRequest | None) -> None:
    for act in features.parts_of_all(lambda each: each.on_sessions_ended):
        act(user_id, request)


@receiver(session_key_changing)
def lock_line(session_key: str, **_: object) -> None:
    """Lock the row of a session whose key is being changed.

    It is locked before the session, as when a session is ended.
    """
    list(SignedIn.objects.select_for_update().filter(key=digest_of(session_key)))


@receiver(session_key_changed)
def move_line(before: str, after: str, **_: object) -> None:
    """Store the session's new key in its row."""
    SignedIn.objects.filter(key=digest_of(before)).update(key=digest_of(after))


@receiver(password_set)
def end_under_old_password(user: User, request: HttpRequest, **_: object) -> None:
    """End the sessions and device registrations of an account whose password an administrator has set."""
    if user.pk == request.user.pk:
        renew(user, request)
    else:
        end_everywhere(user.pk)


def places(user: User, session_key: str | None = None) -> list[Place]:
    """Return the account's sessions, most recently used first. `session_key` is the key of the current session."""
    with connection.cursor() as cursor:
        cursor.execute(_LIST, [user.pk])
        rows = cursor.fetchall()
    own, good = digest_of(session_key), _auth_hash(user)
    return [
        Place(bytes(key).hex(), since, _last_seen(since, ends), address, browser_of(name), bytes(key) == own)
        for key, since, address, name, auth_hash, ends in rows
        if bytes(auth_hash) == good
    ]


def _last_seen(since: datetime, ends: datetime) -> datetime | None:
    """Return when the user was last active; None if unknown.

    A session ends half an hour after the last activity. The time is unknown if the twelve-hour limit ends it earlier.
    """
    return ends - IDLE if ends < since + MAX_LIFETIME - timedelta(minutes=1) else None


def _auth_hash(user: User) -> bytes:
    return hashlib.sha256(user.get_session_auth_hash().encode()).digest()


@transaction.atomic
def end(user_id: int, place: str) -> None:
    """End one session of the account. Raises NotFound."""
    try:
        key = bytes.fromhex(place)
    except ValueError:
        key = b""
    if not SignedIn.objects.filter(user_id=user_id, key=key).delete()[0]:
        raise NotFound("session", place)
    _drop([key])


def end_all(user_id: int, *, but: str | None = None) -> int:
    """End all sessions of the account except the one with this key; return how many."""
    own = digest_of(but)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_OF, [user_id, own])
        keys = [bytes(key) for (key,) in cursor.fetchall()]
        ended = _drop(keys)
        SignedIn.objects.filter(key__in=keys).delete()
    return ended


def _drop(keys: list[bytes]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_END, [[key.hex() for key in keys]])
        return cursor.rowcount


def end_of_another(user_id: int, place: str, *, by: Actor, justification: str) -> int:
    """End one session of another account, or all of them, as an administrator; return how many.

    The act is recorded with the reason. Raises NotFound, JustificationRequired.
    """
    reason = justified("Ending an account's sessions", justification)
    with transaction.atomic():
        user = User.objects.filter(pk=user_id).first()
        if user is None:
            raise NotFound("account", user_id)
        if place:
            end(user_id, place)
        ended = 1 if place else end_everywhere(user_id)
        acted(
            "session_end", by=by, subject=f"user:{user.username}", justification=reason, after={"sessions_ended": ended}
        )
    return ended
