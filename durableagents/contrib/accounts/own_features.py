"""The feature of this app. Pages and libraries are imported only when used, so workers don't load them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from durableagents.identity.sign_in import next_of
from ledger.web.navigation import SectionPage
from runs.features import Feature

PAGES = (
    SectionPage("account", "Your account", "account", frozenset()),
    SectionPage("account", "People", "people", is_for_admins=True),
    SectionPage("account", "Set-up", "setup", is_for_admins=True),
    SectionPage("overview", "Set-up", "setup", is_for_admins=True),
)


def sign_in_panel(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    """Return template and context for the other ways to sign in, shown on the sign-in page."""
    return "accounts/ways.html", {
        "next": next_of(request),
        "providers": settings.DURABLEAGENTS.oidc,
        "is_fresh": request.method == "GET" and not User.objects.exists(),
    }


def greeting(environment: Any) -> str:
    """Return how to create the first administrator, as text."""
    from durableagents.contrib.accounts import first_admin
    from runs.management.shell import command_actor

    if first_admin.is_open():
        link = first_admin.new_link(command_actor())
        return f"set-up {link} works once, for one day; `manage.py setup_link` creates another"
    new = "" if environment.database_url else "; a new one takes a DURABLEAGENTS_DATA of its own"
    return f"set-up this installation already has an administrator: sign in as them{new}"


def _late(module: str, name: str) -> Callable[..., Any]:
    return lambda *given: getattr(import_module(f"{__package__}.{module}"), name)(*given)


def feature() -> Feature:
    """Return this app's feature."""
    return Feature(
        name="accounts",
        second_factors=(_late("door", "ask"),),
        reauthentications=(_late("again", "asked_again"),),
        greetings=(_late("first_admin", "greeting"),),
        sign_in_panels=(sign_in_panel,),
    )
