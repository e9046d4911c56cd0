"""One's own account: sessions and API keys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.accounts import again, signed_in
from durableagents.identity.auth import ISSUE_OWN, MAX_DAYS, issue_own_key, own_keys, revoke_own_key
from ledger.errors import InvalidInput
from ledger.web.page_base import OwnPage, Page
from ledger.web.roles import actor
from runs import features


class KeyForm(forms.Form):
    """The form for a new API key of your own."""

    name = forms.CharField(label="Name", max_length=100, help_text="Purpose of the key, such as: nightly import.")
    days = forms.IntegerField(label="Expires after (days)", min_value=1, max_value=MAX_DAYS, initial=90)


class Account(OwnPage):
    """The page with sessions, keys and password. Each section has its own template."""

    template = "accounts/account.html"
    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, *, form: KeyForm | None = None, status: int = 200) -> HttpResponse:
        user = self.user
        context: dict[str, Any] = {
            "sessions": signed_in.places(user, request.session.session_key),
            "keys": own_keys(user).order_by("-created_at")[:100],
            "panels": [panel(request) for panel in features.parts_of_all(lambda each: each.account_panels)],
            "key_form": (form or KeyForm()) if user.has_perm(ISSUE_OWN) else None,
        }
        return self.show(request, context, status=status)


class EndSessions(OwnPage):
    """End one session, or all but the current one."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        place = request.POST.get("session", "")
        if place == "others":
            ended = signed_in.end_elsewhere(self.user.pk, request)
            words = f"{ended} other session{'' if ended == 1 else 's'} ended."
        else:
            signed_in.end(self.user.pk, place)
            words = "Session ended."
        messages.success(request, words, extra_tags="ok")
        return redirect("account")


class NewKey(again.Risky, Account):
    """Create an API key for yourself.

    Only this response shows the key: a message would travel in a cookie, which isn't secret.
    """

    http_method_names = ["post"]
    risky = "create an API key"

    def is_asked(self, user: User) -> bool:
        return user.has_perm(ISSUE_OWN)

    def wrong(self, request: HttpRequest, **kwargs: Any) -> HttpResponse | None:
        form = KeyForm(request.POST)
        return None if form.is_valid() else self.get(request, form=form, status=422)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = KeyForm(request.POST)
        if not form.is_valid():
            return self.get(request, form=form, status=422)
        given = form.cleaned_data
        try:
            token = issue_own_key(self.user, given["name"], days=given["days"], by=actor(request, ""))
        except InvalidInput as error:
            form.add_error("name", error.detail)
            return self.get(request, form=form, status=422)
        return shown_once(
            self, request, "Your new key", token, "account", f"{given['name']} expires after {given['days']} days."
        )


class RevokeKey(OwnPage):
    """Revoke one of your own API keys."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, key_id: int) -> HttpResponse:
        key = revoke_own_key(self.user, key_id, by=actor(request, ""))
        messages.success(request, f"Key {key.name} revoked.", extra_tags="ok")
        return redirect("account")


def shown_once(page: Page, request: HttpRequest, title: str, secret: str, back: str, words: str) -> HttpResponse:
    """Show a secret that can't be read later."""
    context = {"title": title, "secret": secret, "back": back, "words": words}
    return page.show(request, context, template="shown_once.html")
