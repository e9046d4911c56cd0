"""Admin pages of accounts and roles.

Fields whose change needs two people are read-only here and changed on the account's own page.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import flatten, unquote
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminPasswordChangeForm
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest

from durableagents.identity.password_check import hashed
from durableagents.identity.rights import is_protected, one_is_left
from durableagents.identity.signals import password_set
from ledger.change_control import hold, is_guarded

ROLES = ("groups", "is_staff", "is_superuser", "user_permissions")


class NewPassword(AdminPasswordChangeForm):
    """The form that sets an account's password. It saves only the password, and sessions under the old one end."""

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request

    def save(self, commit: bool = True) -> User:
        """Save the password. Raises Http404, PermissionDenied, Busy."""
        given = self.cleaned_data
        kept = hashed(given["password1"]) if given["set_usable_password"] else make_password(None)
        hold()
        user = User.objects.select_for_update().filter(pk=self.user.pk).first()
        if user is None:
            raise Http404
        if is_protected(user, self.request.user.pk):
            raise PermissionDenied
        user.password = kept
        user.save(update_fields=["password"])
        password_set.send(User, user=user, request=self.request)
        self.user = user
        return user


class Accounts(UserAdmin):
    """Admin pages of accounts: names, mail addresses, access; and roles, unless a change of roles needs two people."""

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the fields whose change needs two people.

        Accounts that may act as the second person can only be deactivated here.
        """
        kept = super().get_readonly_fields(request, obj)
        if is_protected(obj, request.user.pk):
            every = [name for _, part in self.get_fieldsets(request, obj) for name in part["fields"]]
            return [name for name in flatten(every) if name != "is_active" or not obj.is_active]
        return (*kept, *(ROLES if is_guarded("roles") else ()))

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save only the changed fields of an existing account. Raises Http404, PermissionDenied, LastAdministrator."""
        if not change:
            super().save_model(request, obj, form, change)
            return
        hold()
        row = User.objects.select_for_update().filter(pk=obj.pk).first()
        if row is None:
            raise Http404
        if set(form.changed_data) & set(self.get_readonly_fields(request, row)):
            raise PermissionDenied
        with one_is_left(row):
            obj.save(update_fields=[each.name for each in User._meta.concrete_fields if each.name in form.changed_data])

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Report accounts as protected if the administration's log names them, so that the page offers no deletion."""
        has_acted = Q(logentry__isnull=False) | Q(pk=request.user.pk)  # Django logs the deletion itself first.
        found = list(User.objects.filter(has_acted, pk__in=[each.pk for each in objs]).distinct())
        objects, counts, lacking, protected = super().get_deleted_objects(objs, request)
        kept = [
            f"{user.username} is named in the change log, which must stay complete: deactivate the account"
            for user in found
        ]
        return objects, counts, lacking, [*protected, *kept]

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        """Delete an account. Raises LastAdministrator."""
        with transaction.atomic(), one_is_left(obj):
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Delete accounts. Raises LastAdministrator."""
        with transaction.atomic(), one_is_left(*queryset):
            super().delete_queryset(request, queryset)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """Change a password. Raises PermissionDenied for accounts that may act as the second person, and Busy."""
        if is_protected(self.get_object(request, unquote(id)), request.user.pk):
            raise PermissionDenied
        pages = copy(self)
        pages.change_password_form = partial(NewPassword, request=request)  # type: ignore[assignment]
        return UserAdmin.user_change_password(pages, request, id, form_url)


class Roles(GroupAdmin):
    """Admin pages of roles and their permissions. While they need two people, new roles have none."""

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        kept = super().get_readonly_fields(request, obj)
        return (*kept, *(("permissions",) if is_guarded("roles") else ()))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not is_guarded("roles") and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return not is_guarded("roles") and super().has_delete_permission(request, obj)


def register() -> None:
    """Replace Django's own pages of accounts and roles."""
    for model, pages in ((User, Accounts), (Group, Roles)):
        admin.site.unregister(model)
        admin.site.register(model, pages)
