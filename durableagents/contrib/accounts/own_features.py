"""What this app adds. Pages and libraries are imported when they are used: workers don't load them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from durableagents.identity.sign_in import next_of
from ledger.web.navigation import SectionPage
from runs.features import Feature

PAGES = (
    SectionPage("menu", "Your account", "account"),
    SectionPage("menu", "People", "people", is_for_admins=True),
    SectionPage("menu", "Set-up", "setup", is_for_admins=True),
    SectionPage("overview", "Set-up", "setup", is_for_admins=True),
)


def ask_second_factor(request: HttpRequest, user: User, strength: str, next_: str) -> str | None:
    """Return the page that asks for a second factor before a session begins, or None."""
    from durableagents.contrib.accounts import door

    return door.ask(request, user, strength, next_)


def ask_again(request: HttpRequest, what: str, keeps: bool) -> HttpResponse | None:
    """Return the page that asks an administrator to sign in again, or None."""
    from durableagents.contrib.accounts import again

    return again.asked_again(request, what, keeps=keeps)


def sign_in_panel(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    """Return the other ways to sign in."""
    return "accounts/ways.html", {
        "next": next_of(request),
        "providers": settings.DURABLEAGENTS.oidc,
        "is_fresh": request.method == "GET" and not User.objects.exists(),
    }


def greeting(environment: Any) -> str:
    """Return how the first administrator gets in."""
    from durableagents.contrib.accounts import first_admin
    from runs.management.shell import command_actor

    if first_admin.is_open():
        link = first_admin.new_link(command_actor())
        return f"set-up   {link}   works once, for a day; `manage.py setup_link` makes another"
    new = "" if environment.database_url else "; a new one takes a DURABLEAGENTS_DATA of its own"
    return f"set-up   this installation has an administrator already: sign in as them{new}"


def feature() -> Feature:
    """Return this app's feature."""
    return Feature(
        name="accounts",
        second_factors=(ask_second_factor,),
        reauthentications=(ask_again,),
        greetings=(greeting,),
        sign_in_panels=(sign_in_panel,),
    )
