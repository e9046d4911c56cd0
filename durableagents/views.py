"""The overview, sign-in and sign-out."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import authenticate, logout
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views import View

from approvals.inbox import inbox, to_count
from durableagents.env import CHECKOUT
from durableagents.identity import sign_in, throttle
from durableagents.identity.demo_accounts import people
from durableagents.identity.sign_in import next_of
from ledger.errors import Busy
from ledger.protected import ChangedOutside
from ledger.web import navigation
from ledger.web.page_base import SharedPage
from ledger.web.problems import RETRY_AFTER_SECONDS
from ledger.web.roles import PROVED_BY
from ledger.web.tally import Tally
from runs import features
from runs.engine.agents import registry
from runs.queries import run_list

MAX_SHOWN = 8  # limit per kind of work that needs a person; the page of each kind shows all of it
LAST = 10


class Overview(SharedPage):
    """The overview: first the work that needs people, then the state of the installation."""

    template = "overview.html"
    section = "overview"

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Redirect administrators without a role to a page that an app offers them, instead of refusing them."""
        pages = navigation.pages_on("overview", frozenset(), is_admin=bool(request.user.is_superuser))
        return redirect(pages[0].view) if pages else super().refuse(request)

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        tally.read({**run_list.to_count(), **to_count(held)})
        counted = run_list.counts(tally)
        cards, _ = run_list.page(run_list.Filters(), size=LAST)
        waiting = inbox(held, tally, limit=MAX_SHOWN, is_mine_only=True)
        questions, stuck, is_more = run_list.needing_somebody(held, limit=MAX_SHOWN)
        environment = settings.DURABLEAGENTS
        return {
            "items": waiting.items,
            "waiting": waiting,
            "questions": questions,
            "stuck": stuck,
            "is_more": bool(waiting.more or is_more),
            "tiles": run_list.tabs(run_list.Filters(), counted)[1:],
            "cards": cards,
            "agents": registry.agents(),
            "sandbox_url": environment.sandbox_url if environment.is_demo else "",
        }


class SignIn(View):
    """Sign in with name and password; in the demo also with one click per role."""

    def get(self, request: HttpRequest) -> HttpResponse:
        if request.user.is_authenticated:
            return redirect(next_of(request))
        return self._form(request)

    def post(self, request: HttpRequest) -> HttpResponse:
        name = request.POST.get("username", "").replace("\x00", "")[:150]
        try:
            # The attempt is counted before any lookup or hash. A burst of requests would get past a later count.
            attempt = throttle.attempt(name, request.META.get("REMOTE_ADDR", ""))
            user = authenticate(request, username=name, password=request.POST.get("password", ""))
        except (throttle.TooManyAttempts, Busy) as refusal:
            response = self._form(request, name=name, error=refusal.detail, status=refusal.status)
            response["Retry-After"] = str(getattr(refusal, "wait_seconds", RETRY_AFTER_SECONDS))
            return response
        if user is None:
            return self._form(request, name=name, error="Wrong user name or password.", status=400)
        attempt.forgive()
        try:
            return redirect(sign_in.proceed(request, user, next_=next_of(request)))
        except ChangedOutside as refusal:
            return self._form(request, name=name, error=refusal.detail, status=refusal.status)

    def _form(self, request: HttpRequest, *, name: str = "", error: str = "", status: int = 200) -> HttpResponse:
        context = {
            "username": name,
            "error": error,
            "next": next_of(request),
            "cast": people(),
            "panels": [panel(request) for panel in features.parts_of_all(lambda each: each.sign_in_panels)],
            "sandbox_url": settings.DURABLEAGENTS.sandbox_url,
        }
        response = render(request, "sign_in.html", context, status=status)
        response["Cache-Control"] = "no-store"
        return response


class DemoSignIn(View):
    """Sign in as a person of the demo without a password. Does nothing outside the demo."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        name = request.POST.get("username", "")
        if name not in {person.username for person in people()}:
            return redirect("login")
        user = User.objects.get(username=name)
        where = sign_in.proceed(request, user, next_=next_of(request))
        request.session.pop(PROVED_BY, None)  # clicking the button proves nothing about the person
        return redirect(where)


class ServiceWorker(View):
    """Serve the service worker's script, which is public and always revalidated.

    The script is at the root, because a service worker's scope is the part of the site below its URL.
    """

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest) -> HttpResponse:
        text = (CHECKOUT / "static" / "js" / "sw.js").read_bytes()
        return HttpResponse(text, content_type="text/javascript; charset=utf-8", headers={"Cache-Control": "no-cache"})


class SignOut(View):
    """End the session. Open sockets notice the sign-out within seconds."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        logout(request)
        return redirect("login")
