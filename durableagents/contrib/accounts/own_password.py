"""Base of one's own account pages, and the password page."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.accounts import signed_in
from durableagents.identity import throttle
from durableagents.identity.auth import own_keys, revoke
from durableagents.identity.password_check import NewPasswordForm, hashed
from durableagents.identity.people import SessionEnded
from ledger.acting import acting
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page
from ledger.web.roles import actor

# Someone at an unlocked screen must not be able to guess the password.
tries = throttle.Allowance("own password", limit=5, window_seconds=300)


class OtherMeanwhile(DurableAgentsError):
    status, code, title = 409, "account-changed-meanwhile", "Your account is another by now"

    def __init__(self) -> None:
        super().__init__(
            "This changed nothing: since you opened the form your account was closed, or got another password. Of a"
            " form that was sent twice the first one counts. Sign in again."
        )


class OwnPage(Page):
    """For every signed-in user, with or without a role, about their own account."""

    section = "account"

    def may_open(self, held: frozenset[str]) -> bool:
        return True

    @property
    def user(self) -> User:
        user = self.request.user
        assert isinstance(user, User)
        return user


class OwnPassword(OwnPage):
    """Change one's own password."""

    template = "accounts/password.html"
    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._form(request, NewPasswordForm(self.user))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Change the password. All other sessions and device registrations end; API keys too if requested."""
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
            kept = hashed(form.cleaned_data["new_password1"])  # before the transaction, since it takes time
            with transaction.atomic():  # an ended session changes nothing
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
        """Replace the password just proved; return how many keys ended. Raises OtherMeanwhile if it changed."""
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
