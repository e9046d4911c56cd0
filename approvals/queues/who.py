"""Check the right to change queues; name and find accounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User

from ledger.accounts import PROOF, is_authentic_account
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput
from ledger.web.roles import AUDITOR, roles
from ledger.web.text_safety import is_hidden

ADMIN = "admin"
PERMISSION = "approvals.change_queue"


def is_admin(user: Any) -> bool:
    """Return whether an account may configure queues: administration access and the permission to change queues."""
    may_enter = user is not None and user.is_active and user.is_staff and user.has_perm(PERMISSION)
    return bool(may_enter and is_authentic_account(user))


def as_admin(by: Actor, to: str = "set up queues, limits and other people's deputies") -> Actor:
    """Return the actor as administrator, after checking their account as it is now.

    `to` describes the act. Raises Forbidden.
    """
    if by.auth == "shell":
        return by
    if by.person is None or not is_admin(User.objects.filter(pk=by.person).annotate(proof=PROOF).first()):
        raise Forbidden(f"Only an administrator may {to}.")
    return replace(by, role=ADMIN)


def account(field: str, name: str, called: str = "") -> User:
    """Return an active account. Raises InvalidInput for the field that contains the name."""
    user = User.objects.filter(username=name).annotate(proof=PROOF).first() if name else None
    if user is None:
        raise wrong(field, "is not an account", "the name of an account", called)
    if not user.is_active:
        raise wrong(field, "is an account that is closed", "someone who may sign in", called)
    return user


def can_look(user: User) -> bool:
    return bool(roles(user) - {AUDITOR})


def wrong(field: str, problem: str, fix: str, called: str = "") -> InvalidInput:
    """Return the error for one wrong field. `called` is its label, if the field's name isn't clear."""
    text = f"Invalid input: {called or field} {problem}."
    return InvalidInput(text, errors=[{"field": field, "problem": problem, "fix": fix}])


class Unchanged(InvalidInput):
    """The input changes nothing. `errors` names just one field, although no single field is the cause."""

    def __init__(self, field: str, fix: str) -> None:
        problem = {"field": field, "problem": "would stay the same", "fix": fix}
        super().__init__(f"Nothing would change. {fix[:1].upper()}{fix[1:]}.", errors=[problem])


def check_text(field: str, text: str, most: int = 100) -> None:
    """Check that a text is one line without control characters. Raises InvalidInput."""
    if not text.strip():
        raise wrong(field, "is empty", "give a few words")
    if len(text) > most:
        raise wrong(field, f"has {len(text)} characters", f"at most {most}")
    if text != text.strip() or any(character == "\n" or is_hidden(character) for character in text):
        raise wrong(field, "holds invisible characters, or spaces around it", "plain text")
