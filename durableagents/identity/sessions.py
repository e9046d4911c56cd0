"""Session lifetime: 12 hours at most, 30 minutes idle. Stored as the session's own end, which pages, the API and
sockets share."""

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
    """Django's middleware, tolerating a read-only database for extensions of a session; other changes must be saved."""

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
    """Return whether an open page refreshes itself: otherwise an abandoned screen would stay signed in."""
    return request.GET.get("fragment") == "live" and request.headers.get("HX-Trigger") == "live"


@receiver(user_logged_in)
def began(sender: type[User], request: HttpRequest, user: User, **_: Any) -> None:
    """Start the lifetime at sign-in, even in a session that had another user."""
    now = timezone.now()
    request.session[_SINCE] = now.isoformat()
    request.session[PROVED] = database_now().isoformat()  # then, or again since (signin/again.py)
    request.session.pop(PROVED_BY, None)  # set by the view that signs them in
    _note(request.session, now)


def _note(session: SessionBase, now: datetime) -> None:
    # A session from before this was counted starts when it is next seen.
    since = _moment(session, _SINCE, now)
    session[_SINCE], session[_SEEN] = since.isoformat(), now.isoformat()
    session.set_expiry(min(now + IDLE, since + MAX_LIFETIME))


def _moment(session: SessionBase, name: str, default: datetime) -> datetime:
    kept = session.get(name)
    return datetime.fromisoformat(kept) if isinstance(kept, str) else default
