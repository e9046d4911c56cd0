"""Pages about your own ways to sign in: password, second factors, passkeys, linked sign-ins."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.accounts import again, door, factors, passkeys, signed_in, webauthn
from durableagents.contrib.accounts import provider_links as links
from durableagents.identity import throttle
from durableagents.identity.auth import own_keys, revoke
from durableagents.identity.password_check import NewPasswordForm, hashed
from durableagents.identity.people import SessionEnded
from durableagents.providers import OidcProvider
from ledger.acting import acting
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.page_base import OwnPage
from ledger.web.roles import actor, needs_factor

# A stranger at an unlocked screen must not be able to guess the password.
tries = throttle.Allowance("own password", limit=5, window_seconds=300)


class OtherMeanwhile(DurableAgentsError):
    """The account was changed since the page was shown. Nothing was done."""

    status, code, title = 409, "account-changed-meanwhile", "Your account has changed meanwhile"

    def __init__(self) -> None:
        super().__init__(
            "Nothing was changed: since you opened the form, your account was closed or its password changed. Of a"
            " form that was sent twice the first one counts. Sign in again."
        )


class Password(OwnPage):
    """Change one's own password. If the account has a second factor, the page asks for it first."""

    template = "accounts/password.html"
    http_method_names = ["get", "head", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.user.is_authenticated and factors.has_factor(self.user):
            is_proof = again.CODE in request.POST or again.PASSKEY in request.POST
            # The input contains passwords, which no page may show again.
            if asked := again.asked_again(request, "change your password", keeps=False):
                return asked
            if is_proof:
                return redirect("password")
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._form(request, NewPasswordForm(self.user))

    def post(self, request: HttpRequest) -> HttpResponse:
        """Change the password.

        All other sessions and device registrations end, and the API keys too if requested.
        """
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
            kept = hashed(form.cleaned_data["new_password1"])  # takes time, so it comes before the transaction
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
        """Replace the password that was just verified; return how many keys ended.

        Raises OtherMeanwhile if it has changed.
        """
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
    """Base of pages about your own ways to sign in."""


class SecondFactor(OfEveryone):
    """Show the second factor. A POST completes the set-up with a code."""

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
        signed_in.end_elsewhere(user.pk, request)  # ends sessions that have only the password
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
        signed_in.end_elsewhere(user.pk, request)  # ends sessions that began with the removed factor
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
    """Link a provider. The response contains the link to the provider, since forms may not submit to other sites."""

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
            # ends sessions that may have begun with the removed link
            signed_in.end_elsewhere(self.user.pk, request)
            messages.success(request, "Unlinked.", extra_tags="ok")
        return redirect("second_factor")


def named(name: str) -> OidcProvider:
    """Return a configured provider. Raises Http404."""
    found = next((one for one in settings.DURABLEAGENTS.oidc if one.id == name), None)
    if found is None:
        raise Http404
    return found


class NewPasskey(OfEveryone):
    """Show the button that creates a passkey. A POST, since it needs recent authentication."""

    template = "accounts/second_factor_page.html"
    http_method_names = ["post"]
    risky = "add a passkey"

    def post(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: DurableAgentsError | None = None) -> HttpResponse:
        """Show the page, with the refusal."""
        name = request.POST.get("name", "")[: passkeys.MAX_NAME]
        context: dict[str, Any] = {"is_making": True, "refused": refused, "name": name}
        try:
            context["passkey"] = passkeys.button_data(*passkeys.to_make(self.user))
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
            signed_in.end_elsewhere(user.pk, request)  # ends sessions that have only the password
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
        signed_in.end_elsewhere(user.pk, request)  # ends sessions that may have begun with the removed passkey
        messages.success(request, "Passkey removed.", extra_tags="ok")
        return redirect("second_factor")
