"""Invitations to create an account.

An administrator sets name, address and roles; the invited person opens a link and chooses the password.
"""

# Only the link contains the token. Each change is recorded as an act. Triggers record the account and its roles as
# created by the invited person through the link.

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from durableagents.contrib.accounts import links
from durableagents.contrib.accounts.models import Invitation
from durableagents.contrib.accounts.protected import INVITATION
from durableagents.identity import names
from durableagents.identity.auth import digest
from durableagents.identity.password_check import hashed
from durableagents.identity.rights import known_roles, unknown_role
from ledger.acting import acting
from ledger.actors import Actor
from ledger.append import acted, justified
from ledger.change_control import hold, is_guarded
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, InvalidInput, NotFound
from ledger.protected import check
from ledger.web.roles import ordered

DAYS, MAX_DAYS = 7, 30


class AlreadyInvited(DurableAgentsError):
    status, code, title = 409, "already-invited", "Someone else has just invited them"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} was invited by someone else at the same moment: look at the list of invitations.")


class NotOpen(DurableAgentsError):
    status, code, title = 409, "invitation-ended", "The invitation has ended"

    def __init__(self, how: str) -> None:
        super().__init__(f"The invitation was already {how}; nothing has changed.")


def invite(
    *, name: str, email: str, roles: Collection[str], is_admin: bool, by: Actor, justification: str, days: int = DAYS
) -> tuple[Invitation, str]:
    """Create an invitation and return it with its link, which can't be read again.

    Replaces an open invitation of the same name. Raises InvalidInput, NameTaken, JustificationRequired, AlreadyInvited.
    """
    reason = justified("An invitation", justification)
    name, email = _checked(name, email, roles, is_admin, days)
    token = links.token()
    try:
        with transaction.atomic():
            for row in Invitation.objects.select_for_update().filter(
                username__iexact=name, revoked_at__isnull=True, accepted_at__isnull=True
            ):
                _end(row, by, f"Replaced by another invitation: {reason}")
            now = database_now()
            row = Invitation.objects.create(
                username=name,
                email=email,
                roles=ordered(set(roles)),
                is_admin=is_admin,
                token_hash=digest(token),
                made_by=by.ref,
                maker=by.person or 0,
                made_at=now,
                expires_at=now + timedelta(days=days),
            )
            acted("invite", by=by, subject=f"user:{name}", justification=reason, after=_invitation_values(row), at=now)
    except IntegrityError as error:
        raise AlreadyInvited(name) from error
    return row, links.address("invited", token)


def _checked(name: str, email: str, roles: Collection[str], is_admin: bool, days: int) -> tuple[str, str]:
    try:
        name = names.free_name(name)
    except ValidationError as error:
        raise _wrong("name", " ".join(error.messages)) from error
    email = email.strip()
    try:
        validate_email(email)
    except ValidationError as error:
        raise _wrong("email", "Enter one e-mail address, such as ada@example.org.") from error
    if len(email) > 254:
        raise _wrong("email", "The address is longer than 254 characters.")
    if problem := unknown_role(roles, known_roles()):
        raise _wrong("roles", problem)
    if is_guarded("roles"):
        if roles or is_admin:
            raise _wrong(
                "roles", "Roles need two people: invite without a role, then propose the role on the account's page."
            )
    elif not roles and not is_admin:
        raise _wrong("roles", "Choose a role: without one the account has no access.")
    if not 1 <= days <= MAX_DAYS:
        raise _wrong("days", f"Enter 1 to {MAX_DAYS} days.")
    return name, email


def _wrong(field: str, problem: str) -> InvalidInput:
    return InvalidInput(problem, errors=[{"field": field, "problem": problem, "fix": problem}])


def revoke(invitation_id: int, *, by: Actor, justification: str) -> None:
    """Revoke an invitation. Raises NotFound, NotOpen, JustificationRequired."""
    reason = justified("Revoking an invitation", justification)
    with transaction.atomic():
        row = Invitation.objects.select_for_update().filter(pk=invitation_id).first()
        if row is None:
            raise NotFound("invitation", invitation_id)
        if row.accepted_at or row.revoked_at:
            raise NotOpen("accepted" if row.accepted_at else "revoked")
        _end(row, by, reason)


def _end(row: Invitation, by: Actor, reason: str) -> None:
    row.revoked_at = database_now()
    row.save(update_fields=["revoked_at"])
    acted(
        "invitation_revoke", by=by, subject=f"user:{row.username}", justification=reason, before=_invitation_values(row)
    )


def find(token: str) -> Invitation:
    """Return the open invitation that a link belongs to. Raises UnknownLink, EndedLink."""
    return _usable(Invitation.objects.filter(token_hash=digest(token)).first())


def accept(token: str, *, password: str, address: str) -> User:
    """Create the invited account with its roles. Only one of several concurrent requests succeeds.

    Raises UnknownLink, EndedLink, NameTaken, Busy.
    """
    find(token)
    kept = hashed(password)
    try:
        with transaction.atomic():
            hold()
            row = _usable(Invitation.objects.select_for_update().filter(token_hash=digest(token)).first())
            name = names.free_name(row.username, names.ASK)
            with acting(Actor("user", name, auth="token", address=address)):
                user = User(
                    username=name, email=row.email, password=kept, is_staff=row.is_admin, is_superuser=row.is_admin
                )
                user.save(force_insert=True)
                user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles_of(row) or ()])
            now = database_now()
            row.accepted_at, row.account = now, user.pk
            row.save(update_fields=["accepted_at", "account"])
            acted(
                "invitation_accept",
                by=Actor("user", name, auth="token", address=address, person=user.pk),
                subject=f"user:{name}",
                after={**_invitation_values(row), "invited_by": row.made_by},
                at=now,
            )
    except IntegrityError as error:
        raise names.NameTaken(row.username, names.ASK) from error
    return user


def roles_of(row: Invitation) -> list[str] | None:
    """Return the roles that an invitation gives; None if its row is malformed and so gives none."""
    roles: Any = row.roles
    return roles if isinstance(roles, list) and all(isinstance(role, str) for role in roles) else None


def gives(row: Invitation) -> bool:
    """Return whether the invitation gives roles that need two people under the two-person rule."""
    return bool(row.roles or row.is_admin)


def _usable(row: Invitation | None) -> Invitation:
    if row is None:
        raise links.UnknownLink
    check(INVITATION, row.pk)
    if row.accepted_at is not None:
        raise links.EndedLink("has been used: the account is there. Sign in")
    if row.revoked_at is not None:
        raise links.EndedLink("was revoked. Ask the person who gave it to you")
    if row.expires_at <= database_now():
        raise links.EndedLink("has expired. Ask the person who gave it to you for another")
    if not User.objects.filter(pk=row.maker, is_superuser=True, is_active=True).exists():
        raise links.EndedLink("ended with the account that made it. Ask another administrator")
    roles = roles_of(row)
    if roles is None:
        raise links.UnknownLink
    if gives(row) and is_guarded("roles"):
        why = "gives roles, and two people give roles here by now. Ask the person who gave it to you for one without"
        raise links.EndedLink(why)
    if set(roles) - set(known_roles()):
        raise links.EndedLink("names a role that is there no longer. Ask the person who gave it to you for another")
    return row


def _invitation_values(row: Invitation) -> dict[str, object]:
    return {
        "email": row.email,
        "roles": row.roles,
        "is_superuser": row.is_admin,
        "expires_at": row.expires_at.isoformat(),
    }
