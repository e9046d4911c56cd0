"""Administrators' pages under `/admin/`: remove others' second factors, link accounts to providers.

Secrets aren't shown, and the tables of providers have no page. Imports are deferred, because every process loads this
module.
"""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.accounts import signed_in
from durableagents.identity.rights import protected
from ledger.append import justified
from ledger.errors import DurableAgentsError
from ledger.web.roles import actor

ADMIN = "admin"


def without_theirs() -> None:
    """Unregister django-allauth's own pages, which would show secrets and let people add providers."""
    for model in (EmailAddress, EmailConfirmation, Authenticator, SocialAccount, SocialApp, SocialToken):
        try:
            admin.site.unregister(model)
        except NotRegistered:
            continue  # this model has no page


class ReasonForm(forms.ModelForm):
    """A form with only a reason."""

    reason = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="How do you know that the request comes from this person? The reason is recorded.",
    )

    class Meta:
        model = Authenticator
        fields: tuple[str, ...] = ()

    def clean_reason(self) -> str:
        """Return the reason. Raises ValidationError."""
        try:
            return justified("Removing a second factor", self.cleaned_data["reason"])
        except DurableAgentsError as refusal:
            raise ValidationError(refusal.detail) from None


class FactorAdmin(admin.ModelAdmin):
    """Lists second factors. An administrator can remove all factors of an account, including its recovery codes."""

    form = ReasonForm
    fields = ("user", "created_at", "last_used_at", "reason")
    readonly_fields = ("user", "created_at", "last_used_at")
    list_display = ("user", "created_at", "last_used_at")
    list_select_related = ("user",)
    search_fields = ("user__username",)
    change_form_template = "admin/factor.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Authenticator]:
        found: QuerySet[Authenticator] = super().get_queryset(request)
        return found.filter(type__in=(Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(super().has_delete_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # needs a reason, which this bulk action doesn't ask for

    def save_model(self, request: HttpRequest, obj: Authenticator, form: Any, change: bool) -> None:
        from durableagents.contrib.accounts import factors

        factors.take_away(obj.user, by=actor(request, ADMIN), reason=form.cleaned_data["reason"])
        signed_in.end_everywhere(obj.user.pk)  # ends the sessions of anybody who has the device

    def response_change(self, request: HttpRequest, obj: Authenticator) -> HttpResponse:
        self.message_user(request, f"Second factors of {obj.user.get_username()} removed.")
        return redirect("admin:mfa_authenticator_changelist")


class LinkForm(forms.ModelForm):
    """The form for an account and its identity at a provider."""

    provider = forms.ChoiceField(label="Provider")
    uid = forms.CharField(
        label="Subject", max_length=191, help_text="The account's `sub` at the provider; not an e-mail address."
    )

    class Meta:
        model = SocialAccount
        fields = ("user", "provider", "uid")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        named: Any = self.fields["provider"]
        named.choices = [(one.issuer, one.name) for one in settings.DURABLEAGENTS.oidc]

    def clean(self) -> dict[str, Any]:
        given = {**(super().clean() or {})}
        there = SocialAccount.objects.filter(provider=given.get("provider"), user=given.get("user"))
        if given.get("user") and there.exists():
            raise ValidationError("This account is linked to another subject of this provider. Unlink that one first.")
        return given


class LinkAdmin(admin.ModelAdmin):
    """Admin pages of links to providers, which are added and removed but never changed."""

    form = LinkForm
    list_display = ("user", "provider", "uid", "date_joined", "last_login")
    list_select_related = ("user",)
    search_fields = ("user__username", "uid")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None and bool(super().has_change_permission(request))

    def delete_model(self, request: HttpRequest, obj: SocialAccount) -> None:
        super().delete_model(request, obj)
        signed_in.end_for(obj.user_id, request)  # ends the sessions of anybody who has that identity

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[SocialAccount]) -> None:
        """Delete links, and end the sessions of all affected accounts."""
        people = sorted(set(queryset.values_list("user_id", flat=True)))
        super().delete_queryset(request, queryset)
        for person in people:
            signed_in.end_for(person, request)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Leave out accounts that may act as the second person."""
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if field is not None and db_field.name == "user":
            field.queryset = User.objects.exclude(pk__in=protected(request.user.pk).values("pk"))
        return field


# This app is loaded after django-allauth's, so its pages are already registered.
without_theirs()
admin.site.register(Authenticator, FactorAdmin)
admin.site.register(SocialAccount, LinkAdmin)
