"""What every page of the console shares: who may come in, who acts as what, and how a page renders whole or in part.

It lies in the lowest app because imports go one way and all three apps have pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views import View

from ledger.access import READS_AUDIT, ROLES, actor, roles
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.tally import Tally

EVERYONE = frozenset(ROLES)
JUSTIFICATION_LENGTH = 4000
ROLE_NAMES = {
    "integrator": "Integrator",
    "operator": "Operator",
    "approver_finance": "Finance approver",
    "approver_legal": "Legal approver",
    "auditor": "Auditor",
}


class Page(View):
    """One page or one act. `allowed` are the roles that may; whoever isn't signed in is sent to do so first."""

    allowed: ClassVar[frozenset[str]] = EVERYONE
    template: ClassVar[str] = ""
    section: ClassVar[str] = ""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            if is_fragment(request):
                return HttpResponse(status=401)
            return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")
        if not self.may_open(roles(request.user)):
            return self.refuse(request)
        try:
            return super().dispatch(request, *args, **kwargs)
        except DurableAgentsError as error:
            return self.trouble(request, error)

    def may_open(self, held: frozenset[str]) -> bool:
        """Whether somebody with these roles may come in."""
        return bool(held & self.allowed)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """403 in words: which role would do."""
        needed = [ROLE_NAMES[role] for role in ROLES if role in self.allowed]
        return self.show(request, {"needed": needed}, template="errors/403.html", status=403)

    def trouble(self, request: HttpRequest, error: DurableAgentsError) -> HttpResponse:
        """A domain error that the page had no form to show it in."""
        return self.show(request, {"error": error}, template="errors/problem.html", status=error.status)

    def acting(self, request: HttpRequest, prefer: Iterable[str] = ()) -> Actor:
        """The signed-in user under the one role that allows this act: the first preferred that they hold, else any that does."""
        held = roles(request.user)
        order = [*prefer, *(role for role in ROLES if role in self.allowed)]
        return actor(request, next((role for role in order if role in held), ""))

    def show(
        self, request: HttpRequest, context: dict[str, Any], *, template: str = "", status: int = 200
    ) -> HttpResponse:
        """Render the page, or only its live part when the page asks to be brought up to date."""
        held = roles(request.user)
        base = {
            "layout": "layouts/live.html" if is_fragment(request) else "layouts/page.html",
            "section": self.section,
            "held": held,
            "is_operator": "operator" in held,
            "may_start": bool(held & {"operator", "integrator"}),
            "may_audit": bool(held & set(READS_AUDIT)),
            "may_see_fleet": bool(held & {"operator", "auditor"}),
            "tally": Tally(held),
        }
        response = render(request, template or self.template, {**base, **context}, status=status)
        # What is on screen is a person's private view of records that move: neither caches nor "back" may bring an old one.
        response["Cache-Control"] = "no-store"
        if is_fragment(request) and status == 200:
            response["X-Live"] = "1"
        return response


def is_fragment(request: HttpRequest) -> bool:
    """Whether a page that is open asks for its live part only."""
    return request.method == "GET" and request.GET.get("fragment") == "live"


def justification(request: HttpRequest) -> str:
    """What the person wrote, with line ends as they typed them. NUL, which no column holds, shows as the sign for what can't be shown."""
    return request.POST.get("justification", "").replace("\r\n", "\n").replace("\x00", "\ufffd").strip()


def stated(text: str) -> str:
    """The justification if it isn't too long for the record. Raises InvalidInput."""
    if len(text) > JUSTIFICATION_LENGTH:
        problem = {"field": "justification", "problem": f"{len(text):,} characters", "fix": f"at most {JUSTIFICATION_LENGTH:,}"}
        raise InvalidInput(f"The justification is too long: {len(text):,} characters of at most {JUSTIFICATION_LENGTH:,}.", errors=[problem])
    return text


def shown_count(number: int, to: int) -> str:
    """A number for the navigation: "99+" beyond `to`, empty for none."""
    return "" if not number else str(number) if number <= to else f"{to}+"
