"""Limit the lifetime of sessions to 12 hours, and to 30 minutes without activity.

Both limits are stored as the session's own end, which pages, the API and sockets share.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.middleware import SessionMiddleware
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from ledger.clock import database_now
from ledger.web.pressure import optionally
from ledger.web.roles import PROVED as PROVED
from ledger.web.roles import PROVED_BY

IDLE = timedelta(minutes=30)
MAX_LIFETIME = timedelta(seconds=settings.SESSION_COOKIE_AGE)
# A session is written at most this often.
NOTED_EVERY = timedelta(minutes=1)
_SINCE, _SEEN = "signed_in_at", "seen_at"


class Sessions(SessionMiddleware):
    """Django's session middleware.

    While the database is read-only, extensions of a session are dropped without an error; other changes must be saved.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if not getattr(request, "is_seen_now", False) or request.session.modified:
            return super().process_response(request, response)
        request.session.modified = True
        save = super().process_response
        return optionally(lambda: save(request, response)) or response


class KeepSignedIn(MiddlewareMixin):
    """Extends a session while its user is active."""

    def process_request(self, request: HttpRequest) -> None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or is_by_itself(request):
            return
        session, now = request.session, timezone.now()
        if (
            SESSION_KEY in session
            and _moment(session, _SEEN, timezone.make_aware(datetime.min + timedelta(days=1))) <= now - NOTED_EVERY
        ):
            was_modified = session.modified
            _note(session, now)
            session.modified = was_modified
            request.is_seen_now = True  # type: ignore[attr-defined]


def is_by_itself(request: HttpRequest) -> bool:
    """Return whether an open page refreshes itself.

    Such requests don't extend the session, since nobody may be at the screen.
    """
    return request.GET.get("fragment") == "live" and request.headers.get("HX-Trigger") == "live"


@receiver(user_logged_in)
def began(sender: type[User], request: HttpRequest, user: User, **_: Any) -> None:
    """Start the lifetime at sign-in, even in a session that belonged to another user before."""
    now = timezone.now()
    request.session[_SINCE] = now.isoformat()
    # the time of sign-in, or of a later authentication (signin/again.py)
    request.session[PROVED] = database_now().isoformat()
    request.session.pop(PROVED_BY, None)  # the view that signs a person in sets it
    _note(request.session, now)


def _note(session: SessionBase, now: datetime) -> None:
    # For sessions that are older than this record, the lifetime begins at their next use.
    since = _moment(session, _SINCE, now)
    session[_SINCE], session[_SEEN] = since.isoformat(), now.isoformat()
    session.set_expiry(min(now + IDLE, since + MAX_LIFETIME))


def _moment(session: SessionBase, name: str, default: datetime) -> datetime:
    kept = session.get(name)
    return datetime.fromisoformat(kept) if isinstance(kept, str) else default
