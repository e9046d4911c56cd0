"""One's own account: what its pages have in common, and a new password."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.identity import signed_in, throttle
from durableagents.identity.auth import own_keys, revoke
from durableagents.identity.password_check import NewPasswordForm, hashed
from durableagents.identity.people import SessionEnded
from ledger.acting import acting
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.roles import actor

# Somebody at another's open screen must not find the password out by trying.
tries = throttle.Allowance("own password", limit=5, window_seconds=300)


class OtherMeanwhile(DurableAgentsError):
    status, code, title = 409, "account-changed-meanwhile", "Your account is another by now"

    def __init__(self) -> None:
        super().__init__(
            "This changed nothing: since you opened the form your account was closed, or got another password. Of a"
            " form that was sent twice the first one counts. Sign in again."
        )


class OwnPage(Page):
    """For everyone who is signed in, with or without a role, and about their own account alone."""

    section = "account"

    def may_open(self, held: frozenset[str]) -> bool:
        return True

    @property
    def user(self) -> User:
        user = self.request.user
        assert isinstance(user, User)
        return user


class OwnPassword(OwnPage):
    """A new one for the old one."""

    template = "account/password.html"
    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._form(request, NewPasswordForm(self.user))

    def post(self, request: HttpRequest) -> HttpResponse:
        """The session that asked goes on; every other one of the account ends, and so does what its other devices are
        told; its API keys end where that is wished."""
        user = self.user
        form, tried = NewPasswordForm(user, request.POST), str(user.pk)
        try:
            throttle.count(tries, tried)
        except throttle.TooManyAttempts as refusal:
            response = self._form(request, NewPasswordForm(user), told=refusal.detail, status=429)
            response["Retry-After"] = str(refusal.wait_seconds)
            return response
        is_valid = form.is_valid()
        if "old_password" not in form.errors:
            throttle.forgive(tries, tried)
        if not is_valid:
            return self._form(request, form, status=422)
        try:
            kept = hashed(form.cleaned_data["new_password1"])  # with no transaction open, for it takes its time
            with transaction.atomic():  # a session that was ended meanwhile changes nothing
                ended = self._keep(kept, end_keys=request.POST.get("end_keys") == "on")
                signed_in.renew(user, request)
                update_session_auth_hash(request, user)
        except SessionEnded:
            raise
        except DurableAgentsError as refusal:
            return self._form(request, NewPasswordForm(user), told=refusal.detail, status=refusal.status)
        keys = f" and {ended} API key{'' if ended == 1 else 's'}" if ended else ""
        messages.success(request, f"Your password is changed. Your other sessions{keys} have ended.", extra_tags="ok")
        return redirect("password")

    def _keep(self, kept: str, *, end_keys: bool) -> int:
        """The new one in the place of the one that was just shown; how many keys ended. Raises OtherMeanwhile, where
        that is not the account's any more."""
        user = self.user
        with acting(actor(self.request, "")):
            row = User.objects.select_for_update().filter(pk=user.pk, is_active=True, password=user.password).first()
            if row is None:
                raise OtherMeanwhile
            row.password = kept
            row.save(update_fields=["password"])
            ended = revoke(own_keys(row)) if end_keys else 0
        user.password = kept
        return ended

    def _form(self, request: HttpRequest, form: NewPasswordForm, *, told: str = "", status: int = 200) -> HttpResponse:
        return self.show(request, {"form": form, "told": told, "keys": own_keys(self.user).count()}, status=status)
