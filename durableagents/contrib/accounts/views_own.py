"""One's own account: sessions, devices for notices, and API keys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import push
from approvals.notices import phones
from approvals.notices.channels import DeviceBody
from durableagents.contrib.accounts import again, signed_in
from durableagents.contrib.accounts.signed_in import device_cookie, device_token
from durableagents.contrib.accounts.views_ways import OwnPage
from durableagents.identity.auth import ISSUE_OWN, MAX_DAYS, issue_own_key, own_keys, revoke_own_key
from durableagents.identity.signals import signed_out
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web.page_base import Page
from ledger.web.page_forms import Sent
from ledger.web.roles import actor

KEPT_SECONDS = 400 * 86_400  # the longest that browsers keep cookies


def keep_token(response: HttpResponse, token: str) -> None:
    """Store the device token in a cookie that scripts can't read."""
    response.set_cookie(
        device_cookie(),
        token,
        max_age=KEPT_SECONDS,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )


@receiver(signed_out)
def end_notices(request: HttpRequest, response: HttpResponse, **_: object) -> None:
    """End this browser's notices after signing out."""
    phones.left(device_token(request))
    response.delete_cookie(device_cookie(), samesite="Lax")


@receiver(user_logged_in)
def entered(sender: type[User], request: HttpRequest, user: User, **_: object) -> None:
    """End notices of another account in this browser."""
    phones.left(device_token(request), now_of=user.pk)


class KeyForm(forms.Form):
    """A new key of one's own."""

    name = forms.CharField(label="Name", max_length=100, help_text="What it is for, such as: nightly import.")
    days = forms.IntegerField(label="Expires after (days)", min_value=1, max_value=MAX_DAYS, initial=90)


class Account(OwnPage):
    """Sessions, keys and password. Each section of the page has its own template."""

    template = "accounts/account.html"
    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, *, form: KeyForm | None = None, status: int = 200) -> HttpResponse:
        user = self.user
        context: dict[str, Any] = {
            "sessions": signed_in.places(user, request.session.session_key),
            "keys": own_keys(user).order_by("-created_at")[:100],
            **devices_of(request, user),
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


def devices_of(request: HttpRequest, user: User) -> dict[str, Any]:
    """Return the context of `account/account.html` about devices for notices."""
    here = phones.here(user.pk, signed_in.device_token(request))
    told: dict[str, Any] = {"devices": phones.of_person(user.pk), "device_here": here.pk if here else 0}
    try:
        push.contact()
        return {**told, "push_key": push.own().public}
    except push.PushUnavailable as why:
        return {**told, "no_push": why.detail}


class Devices(OwnPage):
    """Register this device for notices."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form, name = Sent(request), signed_in.browser_of(request.META.get("HTTP_USER_AGENT", ""))
        try:
            _, token = phones.subscribe(form.read(DeviceBody), name, by=actor(request, ""))
        except DurableAgentsError as refusal:
            messages.error(request, refusal.detail, extra_tags="bad")
            return redirect("account")
        messages.success(request, "This device now receives notifications.", extra_tags="ok")
        response = redirect("account")
        keep_token(response, token)
        return response


class DeviceRemovals(OwnPage):
    """Remove an own device."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, device_id: int) -> HttpResponse:
        phones.take_away(device_id, by=actor(request, ""))
        messages.success(request, "Device removed.", extra_tags="ok")
        return redirect("account")


class NewKey(again.Risky, Account):
    """Create an own key. Only this response shows it: a message would travel in a cookie, which isn't secret."""

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
    """Revoke an own key."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, key_id: int) -> HttpResponse:
        key = revoke_own_key(self.user, key_id, by=actor(request, ""))
        messages.success(request, f"Key {key.name} revoked.", extra_tags="ok")
        return redirect("account")


def shown_once(page: Page, request: HttpRequest, title: str, secret: str, back: str, words: str) -> HttpResponse:
    """Show a secret that can be read only now."""
    context = {"title": title, "secret": secret, "back": back, "words": words}
    return page.show(request, context, template="shown_once.html")
