"""Pages about one's own account: sessions, devices for notices, API keys, password, second factors, linked sign-ins."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialAccount
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.db import transaction
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import push
from approvals.notices import phones
from approvals.notices.channels import DeviceBody
from durableagents.contrib.accounts import again, door, factors, passkeys, signed_in, webauthn
from durableagents.contrib.accounts import provider_links as links
from durableagents.contrib.accounts.signed_in import device_cookie, device_token
from durableagents.identity import throttle
from durableagents.identity.auth import ISSUE_OWN, MAX_DAYS, issue_own_key, own_keys, revoke, revoke_own_key
from durableagents.identity.password_check import NewPasswordForm, hashed
from durableagents.identity.people import SessionEnded
from durableagents.identity.signals import signed_out
from durableagents.providers import OidcProvider
from ledger.acting import acting
from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from ledger.web.page_base import Page
from ledger.web.page_forms import Sent
from ledger.web.roles import actor, needs_factor


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


# Someone at an unlocked screen must not be able to guess the password.
tries = throttle.Allowance("own password", limit=5, window_seconds=300)


class OtherMeanwhile(DurableAgentsError):
    status, code, title = 409, "account-changed-meanwhile", "Your account is another by now"

    def __init__(self) -> None:
        super().__init__(
            "This changed nothing: since you opened the form your account was closed, or got another password. Of a"
            " form that was sent twice the first one counts. Sign in again."
        )


class Password(OwnPage):
    """Change one's own password. The page first asks for the second factor, if any."""

    template = "accounts/password.html"
    http_method_names = ["get", "head", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.user.is_authenticated and factors.has_factor(self.user):
            is_proof = again.CODE in request.POST or again.PASSKEY in request.POST
            # The input is passwords, which no page shows again.
            if asked := again.asked_again(request, "change your password", keeps=False):
                return asked
            if is_proof:
                return redirect("password")
        return super().dispatch(request, *args, **kwargs)

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
            return again.with_retry(response, refusal)
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


_DRAFT = "factor_draft"
LINKING = "linking"


def sections(request: HttpRequest, user: User) -> dict[str, Any]:
    """Return the context of `accounts/second_factor.html` and `accounts/sign_ins.html`. Raises FactorUnreadable."""
    try:
        no_passkeys = webauthn.site() and ""
    except webauthn.PasskeysUnavailable as why:
        no_passkeys = why.detail
    factor, codes_left = factors.of_account(user)
    draft = None
    if factor is None:
        draft = factors.draft(user, request.session.get(_DRAFT, ""))
        if request.session.get(_DRAFT) != draft.sealed:
            request.session[_DRAFT] = draft.sealed
    names = {one.issuer: one.name for one in settings.DURABLEAGENTS.oidc}
    linked = [
        {
            "pk": one.pk,
            "name": names.get(one.provider, one.provider),
            "subject": one.uid,
            "issuer": one.provider,
            "last_used": one.last_login,
        }
        for one in SocialAccount.objects.filter(user_id=user.pk).order_by("pk")
    ]
    known = {str(one["issuer"]) for one in linked}
    return {
        "factor": factor,
        "codes_left": codes_left,
        "draft": draft,
        "is_needed": needs_factor(user),
        "passkeys": passkeys.of_account(user),
        "no_passkeys": no_passkeys,
        "linked": linked,
        "linkable": [one for one in settings.DURABLEAGENTS.oidc if one.issuer not in known],
    }


class OfEveryone(again.Risky, OwnPage):
    """Pages about one's own ways to sign in."""


class SecondFactor(OfEveryone):
    """Show the second factor; by POST, complete its set-up with a code."""

    template = "accounts/second_factor_page.html"
    http_method_names = ["get", "head", "post"]
    risky = "set up a second factor"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(request, sections(request, self.user))

    def post(self, request: HttpRequest) -> HttpResponse:
        user, sealed = self.user, request.session.get(_DRAFT, "")
        if not sealed:
            return redirect("second_factor")
        try:
            codes = factors.set_up(user, sealed, request.POST.get("code", ""), by=actor(request, ""))
        except DurableAgentsError as refusal:
            context = {**sections(request, self.user), "told": refusal.detail}
            return again.with_retry(self.show(request, context, status=refusal.status), refusal)
        request.session.pop(_DRAFT, None)
        signed_in.end_elsewhere(user.pk, request)  # ends sessions by the password alone
        door.grown(request, factors.TOTP)
        again.proved(request, factors.TOTP)
        return self.show(request, {**sections(request, self.user), "codes": codes})


class FactorRemovals(OfEveryone):
    """Remove the authenticator app."""

    http_method_names = ["post"]
    risky = "turn off your second factor"

    def post(self, request: HttpRequest) -> HttpResponse:
        user = self.user
        factors.take_device_away(user, by=actor(request, ""))
        if not factors.has_factor(user):
            door.shrunk(request)
        signed_in.end_elsewhere(user.pk, request)  # they were signed in by the removed factor
        messages.success(request, "Authenticator app turned off.", extra_tags="ok")
        return redirect("second_factor")


class RecoveryCodes(OfEveryone):
    """Create new recovery codes."""

    template = "accounts/second_factor_page.html"
    http_method_names = ["post"]
    risky = "create new recovery codes"

    def post(self, request: HttpRequest) -> HttpResponse:
        codes = factors.renew_codes(self.user, by=actor(request, ""))
        return self.show(request, {**sections(request, self.user), "codes": codes})


class SignInLinks(OfEveryone):
    """Link a provider. The response has the link there, since forms may not lead off this site."""

    template = "accounts/linking.html"
    http_method_names = ["post"]
    risky = "link another sign-in"

    def post(self, request: HttpRequest) -> HttpResponse:
        provider = named(request.POST.get("provider", ""))
        request.session[LINKING] = provider.id
        return self.show(request, {"provider": provider})


class SignInRemovals(OfEveryone):
    """Unlink a provider."""

    http_method_names = ["post"]
    risky = "unlink a sign-in"

    def post(self, request: HttpRequest) -> HttpResponse:
        given = request.POST.get("link", "")
        if not (given.isascii() and given.isdecimal() and len(given) < 10):
            raise Http404
        try:
            links.unlink(self.user, int(given), by=actor(request, ""))
        except NotFound as gone:
            messages.error(request, gone.detail, extra_tags="bad")
        else:
            signed_in.end_elsewhere(self.user.pk, request)  # they may be signed in by the removed link
            messages.success(request, "Unlinked.", extra_tags="ok")
        return redirect("second_factor")


def named(name: str) -> OidcProvider:
    """Return a configured provider. Raises Http404."""
    found = next((one for one in settings.DURABLEAGENTS.oidc if one.id == name), None)
    if found is None:
        raise Http404
    return found


class NewPasskey(OfEveryone):
    """The page whose button creates a passkey. By POST, since it needs recent authentication."""

    template = "accounts/second_factor_page.html"
    http_method_names = ["post"]
    risky = "add a passkey"

    def post(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: DurableAgentsError | None = None) -> HttpResponse:
        """Show the page, with a refusal."""
        name = request.POST.get("name", "")[: passkeys.MAX_NAME]
        context: dict[str, Any] = {"is_making": True, "refused": refused, "name": name}
        try:
            context["passkey"] = passkeys.shown(*passkeys.to_make(self.user))
        except DurableAgentsError as why:
            context["refused"] = refused or why
        failed = context["refused"]
        return self.show(request, context, status=failed.status if failed else 200)


class Passkeys(NewPasskey):
    """Save the new passkey."""

    def post(self, request: HttpRequest) -> HttpResponse:
        user, given = self.user, request.POST
        if "answer" not in given:
            return redirect("second_factor")
        is_first = not factors.has_factor(user)
        try:
            codes = passkeys.set_up(
                user, given.get("challenge", ""), given["answer"], given.get("name", ""), by=actor(request, "")
            )
        except DurableAgentsError as refusal:
            return self.tell(request, refusal)
        if is_first:
            signed_in.end_elsewhere(user.pk, request)  # ends sessions by the password alone
            door.grown(request, passkeys.PASSKEY)
        again.proved(request, passkeys.PASSKEY)
        if codes:
            return self.show(request, {**sections(request, self.user), "codes": codes})
        messages.success(request, "Passkey added.", "ok")
        return redirect("second_factor")


class PasskeyNames(OfEveryone):
    """Rename a passkey."""

    http_method_names = ["post"]
    risky = "rename a passkey"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        try:
            passkeys.rename(self.user, pk, request.POST.get("name", ""), by=actor(request, ""))
        except DurableAgentsError as refusal:
            messages.error(request, refusal.detail, extra_tags="bad")
        else:
            messages.success(request, "Passkey renamed.", extra_tags="ok")
        return redirect("second_factor")


class PasskeyRemovals(OfEveryone):
    """Remove a passkey."""

    http_method_names = ["post"]
    risky = "remove a passkey"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        user = self.user
        passkeys.take_away(user, pk, by=actor(request, ""))
        if not factors.has_factor(user):
            door.shrunk(request)
        signed_in.end_elsewhere(user.pk, request)  # they may be signed in by the removed passkey
        messages.success(request, "Passkey removed.", extra_tags="ok")
        return redirect("second_factor")
