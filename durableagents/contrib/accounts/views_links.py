"""Pages without sign-in: set-up link, invitation, lost password.

Without the right token they all look the same.
"""

# Their URLs grant access. So they are never cached, never sent as referrers (only the origin is) and never logged
# (logs.py), and the pages load nothing from other sites.

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import SetPasswordMixin
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views import View

from durableagents.contrib.accounts import first_admin, invitations, mail, resets
from durableagents.identity import names, sign_in
from ledger.errors import DurableAgentsError
from ledger.web.roles import name_of


class NewPassword(SetPasswordMixin, forms.Form):
    """A form with a password that is entered twice."""

    new_password1, new_password2 = SetPasswordMixin.create_password_fields("New password", "Repeat new password")
    new_password1.help_text = "At least 12 characters. It must not be all digits, repetitive or a common password."
    new_password2.help_text = ""
    new_password1.validators = [*new_password1.validators, MaxLengthValidator(1000)]

    def __init__(self, *args: Any, user: User | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.error_messages = {"password_mismatch": "The passwords don't match."}
        self.user = user

    def clean(self) -> dict[str, Any]:
        """Return the data. Raises ValidationError if the passwords differ or the validators refuse them."""
        self.validate_passwords("new_password1", "new_password2")
        self.validate_password_for_user(self.user or self.about(), "new_password1")
        return super().clean() or self.cleaned_data

    def about(self) -> User:
        """Return the account whose data the password must not resemble."""
        return User()


class FirstAdmin(NewPassword):
    """The form for the first account."""

    username = forms.CharField(label="User name", max_length=150, widget=forms.TextInput({"autocomplete": "username"}))
    email = forms.EmailField(
        label="E-mail",
        required=False,
        help_text="Used to reset your password.",
        widget=forms.EmailInput({"autocomplete": "email"}),
    )
    field_order = ["username", "email"]

    def about(self) -> User:
        return User(username=self.cleaned_data.get("username", ""), email=self.cleaned_data.get("email", ""))


class ResetPassword(NewPassword):
    """The form for a new password that replaces a lost one."""

    end_keys = forms.BooleanField(
        label="Also revoke my API keys",
        required=False,
        help_text="Programs that use them stop working. Do this if someone may know your password.",
    )


class Lost(forms.Form):
    """The form that asks for the account whose password is lost."""

    who = forms.CharField(
        label="User name or e-mail", max_length=254, widget=forms.TextInput({"autocomplete": "username"})
    )


class Door(View):
    """Base of pages without sign-in, which also shows refusals."""

    title = ""
    button = ""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response = super().dispatch(request, *args, **kwargs)
        except DurableAgentsError as error:
            response = self.show(request, title=error.title, words=error.detail, status=error.status)
            if seconds := getattr(error, "wait_seconds", 0):
                response["Retry-After"] = str(seconds)
        response["Cache-Control"] = "no-store"
        # With `no-referrer`, browsers would omit the origin, and the form would be refused as forged.
        response["Referrer-Policy"] = "strict-origin"
        response["X-Robots-Tag"] = "noindex"
        return response

    def show(self, request: HttpRequest, *, status: int = 200, **told: Any) -> HttpResponse:
        given = {"title": self.title, "button": self.button, **told}
        return render(request, "accounts/door.html", given, status=status)


class Claim(Door):
    """Create the first administrator, by the link printed on the installation's machine."""

    title, button = "Set up this installation", "Create account"
    http_method_names = ["get", "head", "post"]
    words = "The first account is the administrator. It invites people and assigns roles."

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        first_admin.check(token)
        return self.show(request, form=FirstAdmin(), words=self.words)

    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        first_admin.check(token)
        form = FirstAdmin(request.POST)
        if form.is_valid():
            given = form.cleaned_data
            try:
                user = first_admin.claim(
                    token,
                    name=given["username"],
                    email=given["email"],
                    password=given["new_password1"],
                    address=request.META.get("REMOTE_ADDR", ""),
                )
            except (ValidationError, names.NameTaken) as error:
                form.add_error("username", error if isinstance(error, ValidationError) else error.detail)
            else:
                return redirect(sign_in.proceed(request, user, next_=reverse("setup")))
        return self.show(request, form=form, words=self.words, status=422)


class Invited(Door):
    """Accept an invitation."""

    title, button = "You are invited", "Create account"
    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        return self._form(request, token, None, 200)

    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        invitation = invitations.find(token)
        form = NewPassword(request.POST, user=User(username=invitation.username, email=invitation.email))
        if not form.is_valid():
            return self._form(request, token, form, 422)
        address = request.META.get("REMOTE_ADDR", "")
        user = invitations.accept(token, password=form.cleaned_data["new_password1"], address=address)
        page = "overview" if invitation.roles else "setup" if invitation.is_admin else "account"
        return redirect(sign_in.proceed(request, user, next_=reverse(page)))

    def _form(self, request: HttpRequest, token: str, form: NewPassword | None, status: int) -> HttpResponse:
        invitation = invitations.find(token)
        named = [name_of(role) for role in invitation.roles] + ["Administrator"] * invitation.is_admin
        facts = {"User name": invitation.username, "E-mail": invitation.email, "Roles": ", ".join(named)}
        return self.show(request, form=form or NewPassword(), facts=facts, username=invitation.username, status=status)


class AskReset(Door):
    """Request a reset link. The answer is the same whether or not the account exists."""

    title, button = "A new password", "Send link"
    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest) -> HttpResponse:
        if not mail.is_set():
            return self._no_mail(request)
        return self.show(request, form=Lost(), words="We send a link to your account's e-mail address.")

    def post(self, request: HttpRequest) -> HttpResponse:
        if not mail.is_set():
            return self._no_mail(request)
        form = Lost(request.POST)
        if not form.is_valid():
            return self.show(request, form=form, status=422)
        resets.ask(form.cleaned_data["who"], request.META.get("REMOTE_ADDR", ""))
        words = (
            "If this account exists and has an e-mail address, we have sent a link. It expires after four hours."
            " If nothing arrives, check the name or ask an administrator."
        )
        return self.show(request, words=words, is_done=True)

    def _no_mail(self, request: HttpRequest) -> HttpResponse:
        words = "E-mail is not set up here. Ask an administrator for a link."
        return self.show(request, words=words)


class SetPassword(Door):
    """Set a new password by a link."""

    title, button = "A new password", "Set password"
    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest, whom: str, token: str) -> HttpResponse:
        return self._form(request, resets.find(whom, token), ResetPassword(), 200)

    def post(self, request: HttpRequest, whom: str, token: str) -> HttpResponse:
        user = resets.find(whom, token)
        form = ResetPassword(request.POST, user=user)
        if not form.is_valid():
            return self._form(request, user, form, 422)
        given = form.cleaned_data
        address = request.META.get("REMOTE_ADDR", "")
        ended = resets.set_password(
            whom, token, password=given["new_password1"], end_keys=given["end_keys"], address=address
        )
        keys = f" {ended} API key{'' if ended == 1 else 's'} revoked." if given["end_keys"] else ""
        words = f"Password set. All your sessions were signed out.{keys}"
        return self.show(request, words=words, is_done=True)

    def _form(self, request: HttpRequest, user: User, form: ResetPassword, status: int) -> HttpResponse:
        facts = {"User name": user.username}
        return self.show(request, form=form, facts=facts, username=user.username, status=status)
