"""One's own account: a new password."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.identity import throttle
from durableagents.identity.accounts import acting
from durableagents.models import ApiKey
from ledger.web.page_base import Page
from ledger.web.roles import actor

# Somebody at another's open screen must not find the password out by trying.
tries = throttle.Allowance("own password", limit=5, window_seconds=300)


class OwnPassword(Page):
    """For everyone who is signed in, with or without a role."""

    template = "account/password.html"
    section = "account"
    http_method_names = ["get", "head", "post"]

    def may_open(self, held: frozenset[str]) -> bool:
        return True

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._form(request, PasswordChangeForm(_who(request)))

    def post(self, request: HttpRequest) -> HttpResponse:
        """The session that asked goes on; every other one of the account ends, and its API keys where that is
        wished."""
        user = _who(request)
        form, tried = PasswordChangeForm(user, request.POST), str(user.pk)
        try:
            throttle.count(tries, tried)
        except throttle.TooManyAttempts as refusal:
            response = self._form(request, PasswordChangeForm(user), told=refusal.detail, status=429)
            response["Retry-After"] = str(refusal.wait_seconds)
            return response
        is_valid = form.is_valid()
        if "old_password" not in form.errors:
            throttle.forgive(tries, tried)
        if not is_valid:
            return self._form(request, form, status=422)
        with acting(actor(request, "")):
            form.save()
            ended = _keys(user).update(revoked_at=Now()) if request.POST.get("end_keys") == "on" else 0
        update_session_auth_hash(request, user)
        keys = f" and {ended} API key{'' if ended == 1 else 's'}" if ended else ""
        messages.success(request, f"Your password is changed. Your other sessions{keys} have ended.", extra_tags="ok")
        return redirect("password")

    def _form(
        self, request: HttpRequest, form: PasswordChangeForm, *, told: str = "", status: int = 200
    ) -> HttpResponse:
        return self.show(request, {"form": form, "told": told, "keys": _keys(_who(request)).count()}, status=status)


def _who(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def _keys(user: User) -> QuerySet[ApiKey]:
    """The account's keys that still open the door."""
    return ApiKey.objects.filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), user=user, revoked_at__isnull=True
    )
