"""What a browser keeps to be known again as a device that is told of things: a token that outlives its sessions, for a
phone is told while nobody is signed in there."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from approvals.notices import phones
from durableagents.identity.signed_in import device_cookie, device_token

KEPT_SECONDS = 400 * 86_400  # the most that browsers keep anything


def keep_token(response: HttpResponse, token: str) -> None:
    """Let the browser keep it, out of reach of scripts."""
    response.set_cookie(
        device_cookie(),
        token,
        max_age=KEPT_SECONDS,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )


def signed_out(request: HttpRequest, response: HttpResponse) -> None:
    """Whoever signs out is told of nothing there any more."""
    phones.left(device_token(request))
    response.delete_cookie(device_cookie(), samesite="Lax")


@receiver(user_logged_in)
def entered(sender: type[User], request: HttpRequest, user: User, **_: object) -> None:
    """What somebody else was told there is not for whoever has it now."""
    phones.left(device_token(request), now_of=user.pk)
