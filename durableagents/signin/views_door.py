"""After the first proof and before the session: the second factor's code, or setting one up where it is needed."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views import View

from durableagents.identity import signed_in
from durableagents.identity.throttle import TooManyAttempts
from durableagents.signin import door, factors
from ledger.errors import DurableAgentsError


class AtTheDoor(View):
    """Whoever is nobody at the door is sent to the sign-in page."""

    template = ""
    http_method_names = ["get", "head", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        self.caller = door.caller(request)
        if self.caller is None:
            return redirect("login")
        return super().dispatch(request, *args, **kwargs)

    def show(self, request: HttpRequest, context: dict[str, Any], refusal: DurableAgentsError | None) -> HttpResponse:
        context |= {"caller": self.caller, "told": refusal.detail if refusal else ""}
        response = render(request, self.template, context, status=refusal.status if refusal else 200)
        response["Cache-Control"] = "no-store"
        if isinstance(refusal, TooManyAttempts):
            response["Retry-After"] = str(refusal.wait_seconds)
        return response


class Code(AtTheDoor):
    """The code of the second factor, or a recovery code."""

    template = "account/code.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(request, {}, None)

    def post(self, request: HttpRequest) -> HttpResponse:
        caller = self.caller
        assert caller is not None
        try:
            kind = factors.check(caller.user, request.POST.get("code", ""), by=caller.acting(request))
        except DurableAgentsError as refusal:
            return self.show(request, {}, refusal)
        door.let_in(request, caller.user, strength=f"{caller.strength}+{kind}", has_factor=True)
        return redirect(caller.next)


class FirstFactor(AtTheDoor):
    """Set a second factor up, which this person's role needs, and come in by it."""

    template = "account/first_factor.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._form(request, None)

    def post(self, request: HttpRequest) -> HttpResponse:
        caller = self.caller
        assert caller is not None
        if not caller.sealed:
            return redirect("sign_in_factor")
        try:
            codes = factors.set_up(
                caller.user, caller.sealed, request.POST.get("code", ""), by=caller.acting(request)
            )  # fmt: skip
        except DurableAgentsError as refusal:
            return self._form(request, refusal)
        door.let_in(request, caller.user, strength=f"{caller.strength}+{factors.TOTP}", has_factor=True)
        signed_in.end_all(caller.user.pk, but=request.session.session_key)  # whoever is in by the first proof alone
        return self.show(request, {"codes": codes, "next": caller.next}, None)

    def _form(self, request: HttpRequest, refusal: DurableAgentsError | None) -> HttpResponse:
        assert self.caller is not None
        if factors.has_factor(self.caller.user):  # set up meanwhile, in another window
            return redirect("login")
        draft = factors.draft(self.caller.user, self.caller.sealed)
        door.keep_draft(request, draft.sealed)
        return self.show(request, {"draft": draft}, refusal)
