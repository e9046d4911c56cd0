"""Who may change queues, and how accounts are named and told."""

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
    """Return whether an account may set up queues: it may open the administration and change queues there."""
    may_enter = user is not None and user.is_active and user.is_staff and user.has_perm(PERMISSION)
    return bool(may_enter and is_authentic_account(user))


def as_admin(by: Actor, to: str = "set up queues, limits and other people's deputies") -> Actor:
    """The actor as an administrator, judged from the account as it is now. `to`: what they want, in words. Raises
    Forbidden."""
    if by.auth == "shell":
        return by
    if by.person is None or not is_admin(User.objects.filter(pk=by.person).annotate(proof=PROOF).first()):
        raise Forbidden(f"Only an administrator may {to}.")
    return replace(by, role=ADMIN)


def account(field: str, name: str, called: str = "") -> User:
    """An account that may sign in. Raises InvalidInput by the field that names it."""
    user = User.objects.filter(username=name).annotate(proof=PROOF).first() if name else None
    if user is None:
        raise wrong(field, "is nobody's name", "the name of an account", called)
    if not user.is_active:
        raise wrong(field, "is an account that is closed", "somebody who may sign in", called)
    return user


def can_look(user: User) -> bool:
    return bool(roles(user) - {AUDITOR})


def wrong(field: str, problem: str, fix: str, called: str = "") -> InvalidInput:
    """One thing that is wrong, to be raised. `called`: what people know the field as, where its name doesn't say it."""
    told = f"That can't be: {called or field} {problem}."
    return InvalidInput(told, errors=[{"field": field, "problem": problem, "fix": fix}])


class Unchanged(InvalidInput):
    """What was sent says what holds already. That is no single field's fault: programs, for which each refusal names
    one, are told of the first."""

    def __init__(self, field: str, fix: str) -> None:
        problem = {"field": field, "problem": "is as it was, and so is all else", "fix": fix}
        super().__init__(f"Nothing would change: all is as it was. {fix[:1].upper()}{fix[1:]}.", errors=[problem])


def check_text(field: str, text: str, most: int = 100) -> None:
    """Raises InvalidInput for what isn't plain text of one line."""
    if not text.strip():
        raise wrong(field, "is empty", "say it in a few words")
    if len(text) > most:
        raise wrong(field, f"has {len(text)} characters", f"at most {most}")
    if text != text.strip() or any(character == "\n" or is_hidden(character) for character in text):
        raise wrong(field, "holds what can't be seen, or blanks around it", "plain text")
