"""Find accounts of OpenID Connect identities by issuer and subject only, which a provider never reassigns.

Changes made by a sign-in are recorded with the provider as their actor.
"""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from durableagents.providers import OidcProvider
from ledger.acting import acting
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.roles import is_role


class NotLinked(DurableAgentsError):
    """No account here is linked to the provider's account."""

    status, code, title = 403, "sign-in-not-linked", "No account here"

    def __init__(self, provider: OidcProvider) -> None:
        super().__init__(
            f"No account here is linked to your account at {provider.name}. Sign in with your password and link it "
            "under Second factor and sign-ins, or ask an administrator."
        )


class LinkedElsewhere(DurableAgentsError):
    """The provider's account is linked to another account here."""

    status, code, title = 409, "sign-in-linked-elsewhere", "Linked to another account"

    def __init__(self, provider: OidcProvider) -> None:
        super().__init__(
            f"This sign-in at {provider.name} is linked to another account here, or yours to another one there. "
            "Nothing was changed; an administrator can unlink it."
        )


class AccountClosed(DurableAgentsError):
    """The account is closed."""

    status, code, title = 403, "sign-in-closed", "Account closed"

    def __init__(self) -> None:
        super().__init__("Your account here is closed. Ask an administrator.")


class AddressNotPlain(DurableAgentsError):
    """The e-mail address from the provider is not plain ASCII, so it is not used to find an account."""

    status, code, title = 403, "sign-in-address", "Not signed in"

    def __init__(self, provider: OidcProvider) -> None:
        super().__init__(
            f"The e-mail address from {provider.name} has non-ASCII letters, so it can't be matched to an account. "
            "Sign in with your password and link it under Second factor and sign-ins, or ask an administrator."
        )


class GroupsUnreadable(DurableAgentsError):
    """The claim with the groups, which determine roles, is not a list of groups."""

    status, code, title = 403, "sign-in-groups", "Not signed in"

    def __init__(self, provider: OidcProvider) -> None:
        super().__init__(
            f"{provider.name} says in its claim {provider.groups_claim!r} what is no list of groups, and your roles "
            "follow from it. Ask an administrator to check the provider's settings."
        )


def signed_in_by(provider: OidcProvider, claims: dict[str, Any], *, address: str, strength: str) -> User:
    """Return the account of an identity, after setting the roles of its groups.

    Raises NotLinked, AccountClosed, LinkedElsewhere, GroupsUnreadable, and then changes nothing.
    """
    try:
        return _signed_in_by(provider, claims, address, strength)
    except IntegrityError:
        # A concurrent sign-in of the same person created the account, so it exists now.
        return _signed_in_by(provider, claims, address, strength)


@transaction.atomic
def _signed_in_by(provider: OidcProvider, claims: dict[str, Any], address: str, strength: str) -> User:
    user = _linked(provider, claims) or _by_address(provider, claims)
    by = Actor("system", f"oidc:{provider.id}", auth=strength, address=address, person=user.pk if user else None)
    if user is None:
        user = _newcomer(provider, claims, by)
    if not user.is_active:
        raise AccountClosed
    with acting(by):
        _keep(provider, claims, user)
        _follow_groups(provider, claims, user)
    return user


def link(provider: OidcProvider, claims: dict[str, Any], user: User, *, by: Actor) -> None:
    """Link an account to a provider's subject. Raises LinkedElsewhere."""
    try:
        with acting(by):
            # of concurrent requests, the later one finds the row of the earlier one
            User.objects.select_for_update().get(pk=user.pk)
            _keep(provider, claims, user)
    except IntegrityError:
        raise LinkedElsewhere(provider) from None


def unlink(user: User, pk: int, *, by: Actor) -> None:
    """Remove the link. Raises NotFound."""
    with acting(by):
        if not SocialAccount.objects.filter(pk=pk, user_id=user.pk).delete()[0]:
            raise NotFound("sign-in", pk)


def _linked(provider: OidcProvider, claims: dict[str, Any]) -> User | None:
    found = SocialAccount.objects.filter(provider=provider.issuer, uid=claims["sub"]).first()
    return None if found is None else User.objects.select_for_update().get(pk=found.user_id)


def _by_address(provider: OidcProvider, claims: dict[str, Any]) -> User | None:
    """Return the only account with the address that the issuer verified. Raises AddressNotPlain.

    The address's domain must be one for which the issuer is trusted. The database's upper() maps `ı` to `I` and `ſ` to
    `S`, so it only narrows the search: addresses are equal if they are ASCII and the same in lower case.
    """
    address = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(address, str) or "\x00" in address:
        return None
    _, _, domain = address.rpartition("@")
    if domain.lower() not in {each.lower() for each in provider.email_domains}:
        return None
    if not address.isascii():
        raise AddressNotPlain(provider)
    near = User.objects.select_for_update().filter(email__iexact=address, is_active=True)
    found = [user for user in near if user.email.isascii() and user.email.lower() == address.lower()]
    return found[0] if len(found) == 1 else None


def _newcomer(provider: OidcProvider, claims: dict[str, Any], by: Actor) -> User:
    group = provider.creates_in
    if not group or is_role(group):
        raise NotLinked(provider)
    names = [f"{wanted}@{provider.id}" for wanted in (claims.get("preferred_username"), claims["sub"]) if wanted]
    name = next((one for one in names if _is_free(one)), None)
    if name is None:
        raise NotLinked(provider)
    with acting(by):
        user = User(username=name)
        user.set_unusable_password()
        user.save()
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


def _is_free(name: str) -> bool:
    try:
        User._meta.get_field("username").run_validators(name)  # type: ignore[union-attr]
    except ValidationError:
        return False
    return not User.objects.filter(username__iexact=name).exists()


def _keep(provider: OidcProvider, claims: dict[str, Any], user: User) -> None:
    """Save the link. Raises LinkedElsewhere.

    An account has one subject per issuer, so that a reassigned address gives no access.
    """
    of_account = SocialAccount.objects.filter(provider=provider.issuer, user_id=user.pk).first()
    if of_account is None:
        SocialAccount.objects.create(user_id=user.pk, provider=provider.issuer, uid=claims["sub"])
    elif of_account.uid != claims["sub"]:
        raise LinkedElsewhere(provider)
    else:
        of_account.save(update_fields=["last_login"])


def _follow_groups(provider: OidcProvider, claims: dict[str, Any], user: User) -> None:
    """Set the mapped roles to those in the claim (to none if the claim is missing).

    Other roles are left to administrators.
    """
    if not provider.roles:
        return
    said = claims.get(provider.groups_claim, [])
    said = [said] if isinstance(said, str) else said
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        raise GroupsUnreadable(provider)
    given = {provider.roles[group] for group in said if group in provider.roles}
    held = set(user.groups.values_list("name", flat=True))
    for role in sorted(given - held):
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    for role in sorted((set(provider.roles.values()) & held) - given):
        user.groups.remove(Group.objects.get(name=role))
