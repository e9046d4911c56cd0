"""Give and remove own tags of accounts, with a reason.

A trigger records each change (durableagents/sql/accounts.sql) with the actor of `acting`, in the same transaction.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from durableagents.models import OwnTag
from ledger.append import justified
from ledger.clock import database_now
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web.text_safety import is_hidden

MAX_LENGTH = 200


class AlreadyOwn(DurableAgentsError):
    """The account already has the tag."""

    status, code, title = 409, "tag-already-own", "Already its own"

    def __init__(self, tag: str, user: Any) -> None:
        super().__init__(f"The tag {tag} is already an own tag of {user.get_username()}. Nothing was changed.")


class NotOwn(DurableAgentsError):
    """The tag was already removed."""

    status, code, title = 409, "tag-not-own", "No longer its own"

    def __init__(self, own: OwnTag) -> None:
        super().__init__(f"The tag {own.tag} was already removed from {own.user.get_username()}. Nothing was changed.")


def checked(tag: str) -> str:
    """Return the tag if it is valid. Raises InvalidInput."""
    problem = (
        "is empty"
        if not tag
        else f"has {len(tag)} characters, but at most {MAX_LENGTH} are allowed"
        if len(tag) > MAX_LENGTH
        else "has blanks around it"
        if tag != tag.strip()
        else "contains invisible characters"
        if any(is_hidden(c) for c in tag)
        else ""
    )
    if problem:
        errors = [{"field": "tag", "problem": problem, "fix": "write it as in runs: late, or tenant:acme"}]
        raise InvalidInput(f"The tag {problem}.", errors=errors)
    return tag


@transaction.atomic
def give(user: Any, tag: str, *, justification: str) -> OwnTag:
    """Give an account a tag, so that it sees the runs that carry it.

    Raises InvalidInput, JustificationRequired, AlreadyOwn.
    """
    why = justified("give a tag", justification)
    own = OwnTag(user=user, tag=checked(tag), given_at=Now(), given_for=why)
    try:
        with transaction.atomic():
            own.save(force_insert=True)
    except IntegrityError as error:
        if "durableagents_owntag_once" not in str(error):
            raise
        raise AlreadyOwn(tag, user) from error
    return own


@transaction.atomic
def take(own: OwnTag, *, justification: str) -> None:
    """Remove a tag from its account. Raises JustificationRequired, NotOwn."""
    why = justified("take a tag", justification)
    held = OwnTag.objects.select_for_update().filter(pk=own.pk, taken_at__isnull=True).first()
    if held is None:
        raise NotOwn(own)
    held.taken_at, held.taken_for = database_now(), why
    held.save(update_fields=["taken_at", "taken_for"])
