"""Base of the console's pages: access, the acting role, and full or partial rendering.

It is in the lowest app, because imports go only one way and all three apps have pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import Resolver404, resolve, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import View

from ledger.actors import Actor
from ledger.clock import moment_of
from ledger.errors import DurableAgentsError, Proposed
from ledger.web.roles import EVERY, actor, name_of, role_in, roles
from ledger.web.seeing.viewers import explained, looking_as, must_see, viewer
from ledger.web.shared_rendering import renderings
from ledger.web.tally import Tally

EVERYONE = frozenset(EVERY)


def may_open(name: str, args: Iterable[Any], held: frozenset[str], request: HttpRequest | None) -> bool:
    """Return whether the reader may open a page, so that no link leads to a refusal.

    `request` is None for parts of pages that are shared by all readers with the same roles.
    """
    found = resolve(reverse(name, args=list(args)))
    view = getattr(found.func, "view_class", None)
    if view is None or not issubclass(view, Page):
        return True
    if request is None:
        return role_in(view.allowed, held) is not None
    page = view(**getattr(found.func, "view_initkwargs", {}))
    page.request = request
    return bool(page.may_open(held))


class OnlySent(DurableAgentsError):
    """The URL does not support this method."""

    status, code, title = 405, "method-not-allowed", "Page not found"

    def __init__(self) -> None:
        super().__init__("This URL only accepts forms. Go back to the page with the form. Nothing was changed.")


class Page(View):
    """One page or act. `allowed` are the roles that may use the page; anonymous users are sent to sign in."""

    allowed: ClassVar[frozenset[str]] = EVERYONE
    template: ClassVar[str] = ""
    section: ClassVar[str] = ""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            if is_fragment(request):
                return HttpResponse(status=401)
            return redirect_to_login(_came_from(request))
        if not self.may_open(roles(request.user)):
            return self.refuse(request)
        if any(isinstance(given, str) and "\x00" in given for given in kwargs.values()):
            raise Http404  # no name contains NUL, because the database can't store it
        try:
            if "run_id" in kwargs:
                must_see(kwargs["run_id"])
            return super().dispatch(request, *args, **kwargs)
        except Proposed as waits:
            messages.success(request, "Nothing has changed yet. A second person must approve it.", extra_tags="ok")
            return redirect("rule_change", change_id=waits.change)
        except DurableAgentsError as error:
            explanation = explained(error, kwargs.get("run_id"))
            return self.trouble(request, explanation if isinstance(explanation, DurableAgentsError) else error)

    def may_open(self, held: frozenset[str]) -> bool:
        return role_in(self.allowed, held) is not None

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the roles that are allowed."""
        needed = [name_of(role) for role in EVERY if role in self.allowed]
        return self.show(request, {"needed": needed}, template="errors/403.html", status=403)

    def trouble(self, request: HttpRequest, error: DurableAgentsError) -> HttpResponse:
        """Show a domain error that doesn't belong to a form."""
        return self.show(request, {"error": error}, template="errors/problem.html", status=error.status)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Redirect a reader who opens a form's URL to the page with the form; refuse other methods."""
        if request.method == "GET" and (page := self.form_page(request.path, **kwargs)):
            return redirect(page)
        response = self.trouble(request, OnlySent())
        response["Allow"] = ", ".join(name.upper() for name in self.http_method_names if hasattr(self, name))
        return response

    def form_page(self, path: str, **kwargs: Any) -> str:
        """Return the page with the form for this URL: the nearest page above it; empty if there is none."""
        while path := path.rpartition("/")[0]:
            if _is_page(path):
                return path
        return ""

    def acting(self, request: HttpRequest, prefer: Iterable[str] = ()) -> Actor:
        """Return the user as actor in a role that allows this.

        The role is the first of the preferred roles that they hold, else any allowed one.
        """
        held = roles(request.user)
        order = [*prefer, *(role for role in EVERY if role in self.allowed)]
        return actor(request, role_in(order, held) or "")

    def show(
        self, request: HttpRequest, context: dict[str, Any], *, template: str = "", status: int = 200
    ) -> HttpResponse:
        """Render the page, or only its live part for a refresh."""
        base = self.base(roles(request.user), is_part=is_fragment(request), as_of=read_at(request))
        response = render(request, template or self.template, {**base, **context}, status=status)
        return self.private(request, response)

    def base(self, held: frozenset[str], *, is_part: bool, as_of: int) -> dict[str, Any]:
        """Return the context of every page's template."""
        return {
            "layout": "layouts/live.html" if is_part else "layouts/page.html",
            "section": self.section,
            "as_of": as_of,
            "held": held,
            "is_operator": "operator" in held,
            "may_start": bool(held & {"operator", "integrator"}),
            "tally": Tally(held),
        }

    def private(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        # Pages are private views of changing records: neither caches nor the back button may show an old one.
        response["Cache-Control"] = "no-store"
        if is_fragment(request) and response.status_code == 200:
            response["X-Live"] = "1"
        return response


def _came_from(request: HttpRequest) -> str:
    """Return the page to continue with after signing in: the requested one, or the page with the form."""
    if request.method == "GET":
        return request.get_full_path()
    sent_from = request.headers.get("Referer", "")
    is_ours = url_has_allowed_host_and_scheme(sent_from, {request.get_host()}, require_https=request.is_secure())
    if not is_ours:
        return "/"
    parts = urlsplit(sent_from)
    return urlunsplit(("", "", parts.path, parts.query, "")) if _is_page(parts.path) else _form_page_of(parts.path)


def _form_page_of(path: str) -> str:
    """Return the page with the form for a URL that only accepts forms; the overview if unknown."""
    try:
        found = resolve(path)
    except Resolver404:
        return "/"
    view = getattr(found.func, "view_class", None)
    if view is None or not issubclass(view, Page):
        return "/"
    return view().form_page(path, **found.kwargs) or "/"


def _is_page(path: str) -> bool:
    """Return whether the URL is that of a page. Refused forms are shown at URLs that only accept forms."""
    try:
        view = getattr(resolve(path).func, "view_class", None)
    except Resolver404:
        return False
    return view is not None and hasattr(view, "get") and "get" in view.http_method_names


class SharedPage(Page):
    """A page that is the same for everybody with the same roles and visible runs.

    Each reader is authenticated, then gets the one shared rendering: neither `content` nor the live part gets the
    request, so nothing personal can reach others.
    """

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        raise NotImplementedError

    def get(self, request: HttpRequest) -> HttpResponse:
        held, who = roles(request.user), viewer().in_common
        if not is_fragment(request):
            tally = Tally(held)
            with looking_as(who):
                return self.show(request, {**self.content(request.GET, held, tally), "tally": tally})
        query = request.GET.copy()
        began = read_at(request)
        since = moment_of(query.get("since", "")) or began  # without `since`, the time of this request
        for name in ("fragment", "since"):
            query.pop(name, None)

        def make() -> str:
            tally = Tally(held)
            with looking_as(who):
                content = self.content(query, held, tally)
                return render_to_string(
                    self.template, {**self.base(held, is_part=True, as_of=began), **content, "tally": tally}
                )

        rendering = renderings.get((type(self), query.urlencode(), held, who), since=since, began=began, make=make)
        return self.private(request, HttpResponse(rendering.body))


def read_at(request: HttpRequest) -> int:
    """Return the time before which every commit is visible to this request, on the database's clock; 0 if unknown."""
    return int(getattr(request.session, "read_at", 0))


def is_fragment(request: HttpRequest) -> bool:
    """Return whether an open page requests only its live part."""
    return request.method == "GET" and request.GET.get("fragment") == "live"


class OwnPage(Page):
    """A page about the reader's own account, for every signed-in user, even without a role."""

    section = "account"

    def may_open(self, held: frozenset[str]) -> bool:
        return True

    @property
    def user(self) -> User:
        user = self.request.user
        assert isinstance(user, User)
        return user
