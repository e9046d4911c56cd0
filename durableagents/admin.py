"""Django admin pages for users, roles, users' own tags, API keys, prices and default budgets.

No page reads or changes runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pydantic
from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone

from durableagents import admin_users
from durableagents.identity import own_tags
from durableagents.identity.auth import digest, issue_key, revoke
from durableagents.models import ApiKey, OwnTag
from ledger.append import acted, justified
from ledger.errors import InvalidInput, JustificationRequired, Proposed
from ledger.web.misfit import problems
from ledger.web.roles import actor
from runs.engine.agents import Agent, registry
from runs.engine.budget import A_MILLION, Budget, usd_of
from runs.models import BudgetDefault, Price
from runs.services.budgets import prices
from runs.services.budgets.prices import set_price

KEY_LIVES = timedelta(days=365)
ADMIN = "admin"
_MONEY: dict[str, Any] = {
    "min_value": 0,
    "max_value": 10**6,
    "decimal_places": 6,
    "help_text": "In dollars per million tokens, with up to six decimals.",
}
_MODEL = re.compile(r"[^\s:\x00-\x1f]{1,100}:[^\s\x00-\x1f]{1,200}")


def warn_unpriced(request: HttpRequest, budget: Any, agents: Iterable[Agent]) -> None:
    """Warn about agents that can't start with a dollar budget because one of their models has no price."""
    if not (isinstance(budget, dict) and budget.get("usd") is not None):
        return
    for agent in agents:
        if models := prices.unpriced(agent):
            words = f"No run of {agent.graph_id} can start with this budget: there is no price for {', '.join(models)}."
            messages.warning(request, f"{words} Set it under Prices, or remove the dollar cap.")


def checked_budget(given: Any) -> dict[str, Any]:
    """Return a budget in its stored form: only the caps that were given, dollars as text. Raises ValidationError."""
    try:
        budget = Budget.model_validate(given)
    except pydantic.ValidationError as error:
        known = ", ".join(Budget.model_fields)
        raise ValidationError(
            [f"{path or 'budget'}: {what}" for path, what in problems(error)] + [f"Known: {known}."]
        ) from None
    if not budget.stated():
        raise ValidationError(f"It names no cap. Known: {', '.join(Budget.model_fields)}.")
    return budget.model_dump(mode="json", exclude_none=True)


class OfBudgets(admin.ModelAdmin):
    """Admin pages of rows with a budget. A row's page shows a warning if the budget prevents runs from starting."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show Django's form, with a warning if the budget prevents runs from starting."""
        row = self.get_object(request, object_id) if object_id and request.method == "GET" else None
        if row is not None:
            warn_unpriced(request, row.budget, agents_of(row))
        return super().changeform_view(request, object_id, form_url, extra_context)


def agents_of(row: ApiKey | BudgetDefault) -> list[Agent]:
    """Return the agents a budget may apply to. A budget of a tag or an API key may apply to any agent."""
    name = row.agent if isinstance(row, BudgetDefault) else ""
    return [agent for agent in registry.agents() if not name or name in (agent.name, agent.graph_id)]


class KeyForm(forms.ModelForm):
    """The form for an API key and its budget."""

    def clean_budget(self) -> dict[str, Any] | None:
        """Return the checked budget; None means unlimited."""
        given = self.cleaned_data["budget"]
        return None if given is None else checked_budget(given)


@admin.register(ApiKey)
class ApiKeyAdmin(OfBudgets):
    """Admin pages of API keys, which are issued and revoked but never changed or deleted: records refer to them."""

    list_display = ("name", "user", "prefix", "created_at", "expires_at", "revoked_at", "last_used_at")
    list_select_related = ("user",)
    fields = ("user", "name", "expires_at", "budget")
    form = KeyForm
    actions = ("revoke",)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Issue the key. The token is shown only in the response."""
        token = issue_key(obj.user, obj.name, expires_at=obj.expires_at, budget=obj.budget)
        obj.pk = ApiKey.objects.get(hash=digest(token)).pk
        warn_unpriced(request, obj.budget, agents_of(obj))
        obj.shown_once = token

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Prefill the form with the default expiry."""
        return {"expires_at": timezone.now() + KEY_LIVES}

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the token in this response only. A message would travel in a cookie, which is signed but not secret."""
        context = {**self.admin_site.each_context(request), "title": "API key", "key": obj}
        return TemplateResponse(request, "admin/key_issued.html", context, headers={"Cache-Control": "no-store"})

    @admin.action(description="Revoke the selected keys")
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        with transaction.atomic():
            count = revoke(keys.filter(revoked_at__isnull=True))
        self.message_user(request, f"Revoked: {count}.")


def _reason(action: str, given: str) -> str:
    try:
        return justified(action, given)
    except JustificationRequired as error:
        raise ValidationError(error.detail) from error


class OwnTagForm(forms.ModelForm):
    """The form for giving a tag to a user, or for removing a tag that the user has, with the reason."""

    class Meta:
        model = OwnTag
        fields = ("user", "tag", "given_for", "taken_for")
        widgets = {"tag": forms.TextInput(), "given_for": forms.TextInput(), "taken_for": forms.TextInput()}

    def clean_tag(self) -> str:
        """Return the tag. Raises ValidationError if it isn't a valid tag for runs."""
        try:
            return own_tags.checked(str(self.cleaned_data["tag"]))
        except InvalidInput as error:
            raise ValidationError(error.detail) from error

    def clean_given_for(self) -> str:
        """Return the reason. Raises ValidationError if it is empty."""
        return _reason("give a tag", self.cleaned_data["given_for"])

    def clean_taken_for(self) -> str:
        """Return the reason for removing the tag: saving an existing tag removes it.

        Raises ValidationError if it is empty.
        """
        return _reason("take a tag", self.cleaned_data["taken_for"])

    def clean(self) -> dict[str, Any]:
        given = {**(super().clean() or {})}
        mine = OwnTag.objects.filter(user=given.get("user"), tag=given.get("tag"), taken_at__isnull=True)
        if self.instance.pk is None and not self.errors and mine.exists():
            raise ValidationError("The account already has this tag.")
        return given


@admin.register(OwnTag)
class OwnTagAdmin(admin.ModelAdmin):
    """Admin pages of users' own tags.

    An integrator sees the runs that carry one of their own tags. Tags are given and removed with a reason and never
    deleted, so that past access stays known.
    """

    form = OwnTagForm
    list_display = ("tag", "user", "given_at", "given_for", "taken_at", "taken_for")
    list_select_related = ("user",)
    search_fields = ("tag", "user__username")
    ordering = ("-id",)

    def get_fields(self, request: HttpRequest, obj: OwnTag | None = None) -> Any:
        """Return the fields for giving a new tag, or for removing an existing one."""
        return ["user", "tag", "given_for"] if obj is None else ["user", "tag", "given_for", "given_at", "taken_for"]

    def get_readonly_fields(self, request: HttpRequest, obj: OwnTag | None = None) -> Any:
        return [] if obj is None else ["user", "tag", "given_for", "given_at"]

    def has_change_permission(self, request: HttpRequest, obj: OwnTag | None = None) -> bool:
        return (obj is None or obj.taken_at is None) and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: OwnTag | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: OwnTag, form: Any, change: bool) -> None:
        """Give the tag or remove it. The server sets the time."""
        if change:
            own_tags.take(obj, justification=form.cleaned_data["taken_for"])
        else:
            given = form.cleaned_data
            obj.pk = own_tags.give(given["user"], given["tag"], justification=given["given_for"]).pk


class PriceForm(forms.ModelForm):
    """The form for a price, in dollars per million tokens."""

    usd_in = forms.DecimalField(label="US dollars in", **_MONEY)
    usd_out = forms.DecimalField(label="US dollars out", **_MONEY)
    valid_from = forms.DateTimeField(required=False, help_text="UTC. Empty: from now on.")

    class Meta:
        model = Price
        fields = ("model",)
        widgets = {"model": forms.TextInput()}
        help_texts = {"model": "Name as in a run's journal: provider:model, or scripted:assistant."}

    def clean_model(self) -> str:
        """Return the model's name. Raises ValidationError if no journal can contain such a name."""
        name = str(self.cleaned_data["model"]).strip()
        if not _MODEL.fullmatch(name):
            raise ValidationError("Write provider:model, such as openai:gpt-4o, as in a run's journal.")
        return name


@admin.register(Price)
class PriceAdmin(admin.ModelAdmin):
    """Admin pages of prices, which are added but never changed or deleted, so that past costs stay known."""

    form = PriceForm
    fields = ("model", "usd_in", "usd_out", "valid_from")
    list_display = ("model", "usd_in", "usd_out", "valid_from", "set_by", "set_at")
    ordering = ("model", "-valid_from", "-id")
    search_fields = ("model",)

    @admin.display(description="US dollars in")
    def usd_in(self, price: Price) -> str:
        return usd_of(price.usd_micro_in)

    @admin.display(description="US dollars out")
    def usd_out(self, price: Price) -> str:
        return usd_of(price.usd_micro_out)

    def has_change_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        """Set the price. The server sets author and time."""
        given = form.cleaned_data
        by = actor(request, ADMIN)
        micro = {way: int(given[way] * A_MILLION) for way in ("usd_in", "usd_out")}
        try:
            row = set_price(
                obj.model,
                usd_micro_in=micro["usd_in"],
                usd_micro_out=micro["usd_out"],
                valid_from=given["valid_from"],
                by=by,
            )
        except Proposed as waits:  # The proposal must be kept, so this transaction must not be rolled back.
            obj.proposed = waits.change  # type: ignore[attr-defined]
        else:
            obj.pk = row.pk

    def log_addition(self, request: HttpRequest, obj: Price, message: Any) -> Any:
        """Log the addition, unless the price is still waiting for approval by a second person."""
        return super().log_addition(request, obj, message) if obj.pk else None

    def response_add(self, request: HttpRequest, obj: Price, post_url_continue: str | None = None) -> HttpResponse:
        """Respond as Django does, or redirect to the proposed change."""
        if not obj.pk:
            messages.success(request, "Nothing has changed yet. A second person must approve it.", extra_tags="ok")
            return redirect("rule_change", change_id=obj.proposed)  # type: ignore[attr-defined]
        return super().response_add(request, obj, post_url_continue)


class DefaultForm(forms.ModelForm):
    """The form for the default budget of an agent or a tag."""

    class Meta:
        model = BudgetDefault
        fields = ("agent", "tag", "budget")
        widgets = {"agent": forms.TextInput(), "tag": forms.TextInput()}

    def clean_agent(self) -> str:
        """Return the agent's name. Raises ValidationError if the agent is not installed."""
        name = str(self.cleaned_data["agent"]).strip()
        known = sorted({known for agent in registry.agents() for known in (agent.name, agent.graph_id)})
        if name and name != self.instance.agent and name not in known:
            raise ValidationError(f"No such agent is installed. Installed: {', '.join(known)}.")
        return name

    def clean_budget(self) -> dict[str, Any]:
        return checked_budget(self.cleaned_data["budget"])

    def clean(self) -> dict[str, Any]:
        given = {**(super().clean() or {})}
        if not self.errors and bool(given.get("agent")) == bool(given.get("tag")):
            raise ValidationError("Name either an agent or a tag.")
        return given


@admin.register(BudgetDefault)
class BudgetDefaultAdmin(OfBudgets):
    """Admin pages of default budgets of runs. Each change is recorded as an act."""

    form = DefaultForm
    list_display = ("agent", "tag", "budget")

    def save_model(self, request: HttpRequest, obj: BudgetDefault, form: Any, change: bool) -> None:
        before = BudgetDefault.objects.filter(pk=obj.pk).first() if change else None
        super().save_model(request, obj, form, change)
        self._record(request, before, obj)
        warn_unpriced(request, obj.budget, agents_of(obj))

    def delete_model(self, request: HttpRequest, obj: BudgetDefault) -> None:
        self._record(request, obj, None)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[BudgetDefault]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def _record(self, request: HttpRequest, before: BudgetDefault | None, after: BudgetDefault | None) -> None:
        was, is_now = (
            {"agent": row.agent, "tag": row.tag, "budget": row.budget} if row else {} for row in (before, after)
        )
        by = actor(request, ADMIN)
        acted("budget_default", by=by, subject=str(after or before), before=was, after=is_now)


def sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the console's sign-in, the only one that is throttled.

    Raises PermissionDenied if already signed in.
    """
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.GET.get("next") or "/admin/")


def without_queue() -> None:
    """Remove django-q2's pages: the engine manages its messages, and its schedules can call any function."""
    for model in apps.get_app_config("django_q").get_models(include_auto_created=False):
        try:
            admin.site.unregister(model)
        except NotRegistered:
            continue  # this model has no page


without_queue()
admin_users.register()
