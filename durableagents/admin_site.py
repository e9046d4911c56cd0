"""The administration site: changes are recorded with their actor and need recent authentication."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

from django.contrib.admin import AdminSite
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from ledger.acting import acting
from ledger.errors import DurableAgentsError
from ledger.web.roles import actor
from runs import features

View = TypeVar("View", bound=Callable[..., HttpResponseBase])
_ROW = re.compile(r"[0-9]{1,19}", re.ASCII)
_CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")


class Site(AdminSite):
    """Django's admin site, which records the actor of every change."""

    def admin_view(self, view: View, cacheable: bool = False) -> View:
        inner = super().admin_view(view, cacheable)

        def recorded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            is_allowed = self.has_permission(request)
            if is_allowed:
                _refuse_unreadable(request)
            if request.method in _CHANGES_NOTHING or not request.user.is_authenticated:
                return inner(request, *args, **kwargs)
            if is_allowed and (page := _authentication_page(request)) is not None:
                return page
            try:
                with acting(actor(request, "")):
                    return inner(request, *args, **kwargs)
            except DurableAgentsError as error:
                if error.status >= 500:
                    raise
                return _refused(error)

        return cast(View, update_wrapper(recorded, inner))


def _refused(error: DurableAgentsError) -> HttpResponse:
    """Return the page for a change that our own rules refuse. Its transaction was rolled back."""
    from ledger.web import problems  # imported here because workers don't need it

    fields = {"status": error.status, "title": error.title, "detail": error.detail}
    return HttpResponse(problems.page("errors/refused.html", fields), status=error.status)


def _authentication_page(request: HttpRequest) -> HttpResponse | None:
    """Return the page that asks for authentication; None if it is recent enough, or when signing out."""
    if request.resolver_match is not None and request.resolver_match.url_name == "logout":
        return None
    is_plain = not any("password" in name for name in request.POST if not name.startswith("proof_"))
    asks = features.parts_of_all(lambda each: each.reauthentications)
    return next((page for ask in asks if (page := ask(request, "change administrators' records", is_plain))), None)


def _refuse_unreadable(request: HttpRequest) -> None:
    """Refuse NUL characters in filters, and ids that aren't numbers.

    Raises BadRequest. Django would pass them to the database.
    """
    if any("\x00" in text for name, given in request.GET.lists() for text in (name, *given)):
        raise BadRequest("The query string contains a NUL character.")
    if request.method == "POST" and not all(map(_ROW.fullmatch, request.POST.getlist(ACTION_CHECKBOX_NAME))):
        raise BadRequest("The form selects rows by something that is not a number.")
