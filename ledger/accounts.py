"""Register accounts and roles as protected rows.

An account's code also covers its memberships, permissions, tags and additions by apps (`ledger_account_parts` in SQL),
so it also proves that no others exist. Roles have their own codes, because renaming a role changes its members'
rights.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import TextField
from django.db.models.expressions import RawSQL
from django.db.models.signals import pre_delete
from django.dispatch import receiver

from ledger.protected import is_authentic, is_authentic_row, protect, relates

ROLE = protect(
    Group,
    "role",
    named_by="name",
    proof="jsonb_build_array(ledger_role_proof({row}))",
    holds=[("auth_group_permissions", "group_id")],
)
ACCOUNT = protect(
    User,
    "account",
    named_by="username",
    free=frozenset({"last_login"}),
    proof="ledger_account_proof({row})",
    holds=[(table, "user_id") for table in ("auth_user_groups", "auth_user_user_permissions")],
)
relates(User.groups.through, ACCOUNT)
relates(User.user_permissions.through, ACCOUNT)
relates(Group.permissions.through, ROLE)


@receiver(pre_delete, sender=Group, dispatch_uid="ledger.accounts.before_role_is_deleted")
def _before_role_is_deleted(sender: type[Group], instance: Group, **_: Any) -> None:
    """Remove the role's members first: a cascade in the database would not renew their codes."""
    instance.user_set.clear()


PROOF = RawSQL(f"{ACCOUNT.proof_sql('auth_user')}::text", [], output_field=TextField())


def is_authentic_account(user: Any) -> bool:
    """Return whether an account is authentic, from its `proof` annotation or else by reading the row."""
    proof = getattr(user, "proof", None)
    return is_authentic_row(ACCOUNT, user.pk) if proof is None else is_authentic(proof)
