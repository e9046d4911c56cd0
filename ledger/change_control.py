"""Port for two-person rules: which rule changes need a second person. No change does unless an app says so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection

from ledger.accounts import PROOF, is_authentic_account
from ledger.actors import Actor
from ledger.errors import Proposed
from ledger.web.roles import OPERATOR, is_role, roles

P = ParamSpec("P")
R = TypeVar("R")

NUMBER = "its number"
SUPERUSER = "superuser"  # a possible value of `needs`, in addition to roles and permissions
OUTCOMES = "outcomes"
# Families of rules whose changes can require two people, with the text shown on pages.
FAMILIES: dict[str, str] = {
    "queues": "queues, approval limits and deputies",
    "roles": "roles, and other rights of accounts and roles",
    "prices": "prices of models",
    OUTCOMES: "outcomes of uncertain calls",
}
# Families whose acts are not rule changes and are not proposed: each with the role that the two people must hold.
OTHER_NEEDS: Mapping[str, str] = {OUTCOMES: OPERATOR}


def declare_family(name: str, text: str) -> None:
    """Register a family of rules that belongs to an app outside the core, with the text shown on pages. Idempotent."""
    FAMILIES[name] = text


@dataclass(frozen=True, slots=True)
class Guarded:
    """A service that changes rules of a family.

    `needs` is what an account must have to act: a role, a permission, or SUPERUSER. `moving` names the parts of its
    records that differ on each run: names in `after`, optionally prefixed with one act (`absence.deputy`), and NUMBER
    if its subject ends in a generated number. `trial` is the URL name of a preview of the change, which accepts the
    body as a form.
    """

    name: str
    family: str
    needs: str
    act: Callable[..., Any]
    moving: frozenset[str]
    trial: str = ""


class ProposedChange(Protocol):
    """A proposed change, as other apps display it."""

    pk: UUID
    why: str
    by: str

    @property
    def title(self) -> str:
        """Return a description of the act and its object that is safe to show."""

    @property
    def can_be_applied(self) -> bool:
        """Return whether a second person could apply the change now."""

    def may_second(self, user: Any) -> bool:
        """Return whether the user's account may be the second person."""


def _propose_nothing(act: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any], by: Actor) -> UUID:
    raise LookupError("no app proposes changes")


@dataclass(frozen=True, kw_only=True)
class ChangeControl:
    """The functions by which an app implements two-person rules; by default no change needs a second person.

    `hold` fixes the answer of `is_guarded` until the transaction ends. `propose` stores a call and returns the id of
    the proposed change; it raises the errors of the act, and Forbidden. `find` returns a proposed change, including
    closed ones.
    """

    is_guarded: Callable[[str], bool] = lambda family: False
    hold: Callable[[], None] = lambda: None
    propose: Callable[[Guarded, tuple[Any, ...], Mapping[str, Any], Actor], UUID] = _propose_nothing
    find: Callable[[str], ProposedChange | None] = lambda change_id: None


_control = ChangeControl()
# Every service marked with `two_person`, by name.
acts: dict[str, Guarded] = {}
_is_agreed: ContextVar[bool] = ContextVar("everybody agreed", default=False)


def install(control: ChangeControl) -> None:
    """Set the app that decides which changes need a second person."""
    global _control
    _control = control


def is_guarded(family: str) -> bool:
    """Return whether changing rules of this family requires two people now."""
    return _control.is_guarded(family)


def hold() -> None:
    """Fix the answer of `is_guarded` until the transaction ends, so that the records' times reflect their order."""
    _control.hold()


def find_proposal(change_id: str) -> ProposedChange | None:
    """Return a proposed change, including closed ones; None if it is unknown."""
    return _control.find(change_id)


def agreed_to(person: int | None, since: datetime) -> list[tuple[str, str]]:
    """Return action and queue of each rule change that this person has applied as the second person since then."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT action, queue FROM ledger_agreed_changes(%s, %s)", [person, since])
        return cursor.fetchall()


@contextmanager
def agreed() -> Iterator[None]:
    """Run services directly inside the block: everybody who must agree has agreed."""
    token = _is_agreed.set(True)
    try:
        yield
    finally:
        _is_agreed.reset(token)


def two_person(
    family: str, *, needs: str, moving: frozenset[str] = frozenset(), trial: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a service `(…, *, by)` that changes rules of a family.

    Where two people are required, a person's call stores a proposal and raises Proposed, in addition to the service's
    own errors.
    """

    def marked(act: Callable[P, R]) -> Callable[P, R]:
        known = Guarded(f"{act.__module__}.{act.__name__}", family, needs, act, moving, trial)
        acts[known.name] = known

        @functools.wraps(act)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            by: Any = kwargs["by"]
            if _is_agreed.get() or not by.is_person or not is_guarded(family):
                return act(*args, **kwargs)
            raise Proposed(_control.propose(known, args, kwargs, by))

        return guarded

    return marked


def account_of(by: Actor) -> User | None:
    """Return a person's account, annotated with its proof; None for keys and systems."""
    return None if by.person is None else User.objects.filter(pk=by.person).annotate(proof=PROOF).first()


def holds(user: Any, needs: str) -> bool:
    """Return whether an active, authentic account holds a role, a permission, or SUPERUSER now."""
    if user is None or not user.is_active or not is_authentic_account(user):
        return False
    if needs == SUPERUSER:
        return bool(user.is_superuser)
    return needs in roles(user) if is_role(needs) else bool(user.is_staff and user.has_perm(needs))
