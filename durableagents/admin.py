"""Set-up by an administrator: users, their roles, API keys. Nothing here reads or changes a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from durableagents.identity.auth import digest, issue_key
from durableagents.models import ApiKey

KEY_LIVES = timedelta(days=365)


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin):
    """Keys are issued and revoked, never changed or deleted: who used one stays known."""

    list_display = ("name", "user", "prefix", "created_at", "expires_at", "revoked_at", "last_used_at")
    list_select_related = ("user",)
    fields = ("user", "name", "expires_at")
    actions = ("revoke",)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """The key itself is kept nowhere; the answer shows it."""
        token = issue_key(obj.user, obj.name, expires_at=obj.expires_at)
        obj.pk = ApiKey.objects.get(hash=digest(token)).pk
        obj.shown_once = token

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """A key ends by itself unless somebody says that it shall not."""
        return {"expires_at": timezone.now() + KEY_LIVES}

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Shown in this answer and no other: a message would travel in a cookie, which is signed and not secret."""
        context = {**self.admin_site.each_context(request), "title": "API key", "key": obj}
        return TemplateResponse(request, "admin/key_issued.html", context, headers={"Cache-Control": "no-store"})

    @admin.action(description="Revoke the selected keys")
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        count = keys.filter(revoked_at__isnull=True).update(revoked_at=Now())
        self.message_user(request, f"Revoked: {count}.")


def sign_in(request: HttpRequest) -> HttpResponse:
    """The console's sign-in is the only one: it alone slows guessing down. Raises PermissionDenied for others than
    staff."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.GET.get("next") or "/admin/")


def without_queue() -> None:
    """Take django-q2's pages away: its messages are ours to make and to end, and its schedules can name any
    function."""
    for model in apps.get_app_config("django_q").get_models(include_auto_created=False):
        try:
            admin.site.unregister(model)
        except NotRegistered:
            continue  # it has no page


without_queue()
