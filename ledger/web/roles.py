"""Who asks, and in which role they may. Shared by the API and the console of every app, hence down here.

Roles are Django groups with exactly these names: the product's own three, and those that decide the queues of the
installation. Being a superuser grants none of them: nobody decides a gate or steers a run without the role being on the
record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from ledger.actors import Actor

INTEGRATOR = "integrator"
OPERATOR = "operator"
AUDITOR = "auditor"
APPROVERS: tuple[str, ...] = tuple(dict.fromkeys(settings.DURABLEAGENTS_QUEUES.values()))
ROLES = (INTEGRATOR, OPERATOR, *APPROVERS, AUDITOR)
# Who did what, and who may: for everybody who answers for it. A program that starts runs has no need to know.
READS_AUDIT = (OPERATOR, *APPROVERS, AUDITOR)

_CACHE = "_durableagents_roles"


def name_of(role: str) -> str:
    """A role as people read it: `approver_refunds` is the Refunds approver."""
    of, _, what = role.partition("_")
    words = f"{what} {of}" if what and of == "approver" else role
    return words.replace("_", " ").capitalize()


ROLE_NAMES = {role: name_of(role) for role in ROLES}


def roles(user: Any) -> frozenset[str]:
    """The roles of a user, read once per user object. Nobody and inactive people have none."""
    if user is None or not user.is_authenticated or not user.is_active:
        return frozenset()
    known = getattr(user, _CACHE, None)
    if known is None:
        known = frozenset(group.name for group in user.groups.all()) & frozenset(ROLES)
        setattr(user, _CACHE, known)
    return known


def know_roles(user: Any, groups: Iterable[str]) -> None:
    """The names of a user's groups, from whoever has read them together with the user."""
    setattr(user, _CACHE, frozenset(groups) & frozenset(ROLES))


def actor(request: HttpRequest | Request, role: str) -> Actor:
    """Whom a record names for this request. `role` is the role under which the act was allowed."""
    by_key = getattr(request, "auth", None) is not None
    return Actor(
        kind="key" if by_key else "user",
        name=request.user.get_username(),
        role=role,
        auth="api_key" if by_key else "session",
        address=request.META.get("REMOTE_ADDR", ""),
        person=request.user.pk,
    )


class HasRole(BasePermission):
    """Default deny: a view says per method which roles may (`roles = {"GET": (...), "POST": (...)}`).

    A method that the view doesn't have passes, so that the answer is 405 and not a misleading 403.
    The role that opened the door is left on the view as `acting_role`.
    """

    message = "None of your roles allows this."

    def has_permission(self, request: Request, view: Any) -> bool:
        if not (request.user and request.user.is_authenticated):
            return False
        method = "GET" if request.method == "HEAD" else str(request.method)
        if not hasattr(view, method.lower()) or method.lower() not in view.http_method_names:
            return True
        declared: Mapping[str, Sequence[str]] = getattr(view, "roles", {})
        held = roles(request.user)
        view.acting_role = next((role for role in declared.get(method, ()) if role in held), None)
        return view.acting_role is not None
