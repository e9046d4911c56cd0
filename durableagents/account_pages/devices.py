"""What a browser keeps to be known again as a device that is told of things: a token that outlives its sessions, for a
phone is told while nobody is signed in there."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from approvals.notices import phones

KEPT_SECONDS = 400 * 86_400  # the most that browsers keep anything


def _cookie() -> str:
    return f"durableagents_device_{settings.DURABLEAGENTS.port}"


def token_of(request: HttpRequest) -> str:
    """What this browser keeps; empty where it is no such device."""
    return str(request.COOKIES.get(_cookie(), ""))[:100]


def keep_token(response: HttpResponse, token: str) -> None:
    """Let the browser keep it, out of reach of scripts."""
    response.set_cookie(
        _cookie(), token, max_age=KEPT_SECONDS, httponly=True, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE
    )


def signed_out(request: HttpRequest, response: HttpResponse) -> None:
    """Whoever signs out is told of nothing there any more."""
    phones.left(token_of(request))
    response.delete_cookie(_cookie(), samesite="Lax")


@receiver(user_logged_in)
def entered(sender: type[User], request: HttpRequest, user: User, **_: object) -> None:
    """What somebody else was told there is not for whoever has it now."""
    phones.left(token_of(request), now_of=user.pk)
