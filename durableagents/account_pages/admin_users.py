"""Accounts and roles under /admin/: what two people change is shown there, and changed on the account's own page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import flatten, unquote
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from durableagents.identity.rights import is_protected
from ledger.four_eyes.known import is_guarded

ROLES = ("groups", "is_staff", "is_superuser", "user_permissions")


class Accounts(UserAdmin):
    """Names, addresses, whether somebody may sign in; and roles, where one person gives them."""

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """What two people change. The account of somebody who may be the second is closed at once, and no more."""
        kept = super().get_readonly_fields(request, obj)
        if is_protected(obj, request.user.pk):
            every = [name for _, part in self.get_fieldsets(request, obj) for name in part["fields"]]
            return [name for name in flatten(every) if name != "is_active" or not obj.is_active]
        return (*kept, *(ROLES if is_guarded("roles") else ()))

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """Raises PermissionDenied for the same accounts."""
        if is_protected(self.get_object(request, unquote(id)), request.user.pk):
            raise PermissionDenied
        return super().user_change_password(request, id, form_url)


class Roles(GroupAdmin):
    """What a role may do besides."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not is_guarded("roles") and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not is_guarded("roles") and super().has_delete_permission(request, obj)


def register() -> None:
    """In the place of Django's own."""
    for model, pages in ((User, Accounts), (Group, Roles)):
        admin.site.unregister(model)
        admin.site.register(model, pages)
