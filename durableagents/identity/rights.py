"""What an administrator lets an account do besides its roles."""

from __future__ import annotations

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction

from durableagents.identity.accounts import acting
from durableagents.identity.auth import ISSUE_OWN
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.errors import NotFound
from ledger.web.roles import ordered


def let_issue_keys(user_id: int, may: bool, *, by: Actor, justification: str) -> None:
    """Whether the account makes API keys of its own. What its roles allow stays. Raises NotFound,
    JustificationRequired."""
    reason = justified("A change of what somebody may do", justification)
    app, _, codename = ISSUE_OWN.partition(".")
    with transaction.atomic():
        user = User.objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise NotFound("account", user_id)
        right = Permission.objects.get(codename=codename, content_type__app_label=app)
        had = user.user_permissions.filter(pk=right.pk).exists()
        with acting(by):
            (user.user_permissions.add if may else user.user_permissions.remove)(right)
        acted(
            "own_keys",
            by=by,
            subject=f"user:{user.username}",
            justification=reason,
            before={"may_issue_own_keys": had},
            after={"may_issue_own_keys": may},
        )


def known_roles() -> list[str]:
    """Every role that there is: the product's own, and those that decide queues."""
    return ordered(Group.objects.values_list("name", flat=True))
