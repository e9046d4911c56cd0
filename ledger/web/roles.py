"""Roles, which are Django groups with the names defined here.

There are three built-in roles, and the roles that decide in queues (`approver_…`, and other names set for a queue).
Superusers have no role implicitly, because the record of an act names a role.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from ledger.actors import Actor

INTEGRATOR = "integrator"
OPERATOR = "operator"
AUDITOR = "auditor"
FIXED = frozenset({INTEGRATOR, OPERATOR, AUDITOR})
# In a view's declaration, this stands for all roles that decide in queues: they are data, so no view can list them.
APPROVER = "approver_*"
EVERY = (INTEGRATOR, OPERATOR, APPROVER, AUDITOR)
# Roles that may read who did what; programs that start runs don't need it.
READS_AUDIT = (OPERATOR, APPROVER, AUDITOR)
# The roles that `migrate` creates: the product's own, and those that the settings name for the initial queues.
ROLES = (INTEGRATOR, OPERATOR, *dict.fromkeys(settings.DURABLEAGENTS_QUEUES.values()), AUDITOR)

_CACHE = "_durableagents_roles"
# Keys in a session: how its user signed in (`session`, with `+sso` and `+totp`, `+recovery_code` or `+passkey`), and
# whether with a second factor.
STRENGTH, HAS_FACTOR = "signed_in_with", "has_second_factor"
# When the user last authenticated (on the database's clock), and how.
PROVED, PROVED_BY = "proved_at", "proved_by"
# A possible value in the second-factor setting, in addition to roles: everybody with access to the administration.
STAFF = "staff"
_APPROVER = re.compile(r"approver_[a-z0-9_]+", re.ASCII)
# Roles with other names that decide in queues: those in the settings, and those of queues when last read.
_OF_SETTINGS = frozenset(ROLES) - FIXED
_named: frozenset[str] = _OF_SETTINGS


def is_approver(role: str) -> bool:
    return role in _named or _APPROVER.fullmatch(role) is not None


def is_role(name: str) -> bool:
    return name in FIXED or is_approver(name)


def learn_roles(names: Iterable[str]) -> None:
    """Replace the known roles of queues with `names`, which come from authentic rows, and those in the settings."""
    global _named
    _named = _OF_SETTINGS | (frozenset(filter(None, names)) - FIXED)


def role_in(declared: Iterable[str], held: Iterable[str]) -> str | None:
    """Return the first declared role that is held, or None."""
    held = frozenset(held)
    for role in declared:
        found = role if role in held else None
        if role == APPROVER:
            found = min((each for each in held if is_approver(each)), default=None)
        if found is not None:
            return found
    return None


def ordered(held: Iterable[str]) -> list[str]:
    held = [role for role in held if is_role(role)]
    own = (INTEGRATOR, OPERATOR), (AUDITOR,)
    return [role for some in (own[0], sorted(set(held) - FIXED), own[1]) for role in some if role in held]


def name_of(role: str) -> str:
    """Return a role's display name: `approver_refunds` is the Refunds approver. Other text is unchanged."""
    if role == APPROVER:
        return "Approver"
    if not is_role(role):
        return role
    of, _, what = role.partition("_")
    words = f"{what} {of}" if what and of == "approver" else role
    return words.replace("_", " ").capitalize()


class StandsIn(NamedTuple):
    """A deputyship: the person decides at this queue on behalf of `whom`, until the given time."""

    queue: str
    until: datetime
    whom: str

    @property
    def mark(self) -> str:
        """Return the deputyship's entry in a person's set of roles.

        It is not a role, so it grants nothing by itself.
        """
        return f"for:{self.queue}:{self.until.isoformat()}:{self.whom}".replace("+00:00", "Z")


class OwnCase(NamedTuple):
    """One case in which the person is involved regardless of their roles.

    They `decide` it on behalf of `whom`, or `whom` has `asked` them about it, which they may have `answered`.
    """

    approval_id: UUID
    what: str
    whom: str

    @property
    def mark(self) -> str:
        """Return the case's entry in a person's set of roles."""
        return f"case:{self.approval_id}:{self.what}:{self.whom}"

    @property
    def waits(self) -> bool:
        return self.what != "answered"


class OwnLimit(NamedTuple):
    """The highest amount that a reader may approve at a queue, by role or for another person.

    With `needs_amount`, cases without an amount also exceed it.
    """

    queue: str
    most: Decimal
    currency: str
    needs_amount: bool

    @property
    def mark(self) -> str:
        return f"limit:{self.queue}:{self.most:f}:{self.currency}:{int(self.needs_amount)}"


def own_limits(held: Iterable[str]) -> dict[str, OwnLimit]:
    """Return the reader's limits by queue; missing queues are unlimited."""
    parts = (mark.split(":") for mark in held if mark.startswith("limit:"))
    return {queue: OwnLimit(queue, Decimal(most), currency, needs == "1") for _, queue, most, currency, needs in parts}


def own_cases(held: Iterable[str]) -> list[OwnCase]:
    """Return the cases in which the person is involved regardless of their roles."""
    parts = (mark.split(":", 3) for mark in held if mark.startswith("case:"))
    return [OwnCase(UUID(case), what, whom) for _, case, what, whom in parts]


def decides_case(held: Iterable[str], approval_id: UUID) -> bool:
    return any(mark.startswith(f"case:{approval_id}:decide:") for mark in held)


def has_case(held: Iterable[str], approval_id: UUID) -> bool:
    return any(mark.startswith(f"case:{approval_id}:") for mark in held)


class Mark(Protocol):
    """An entry in a person's set of roles that is not a role."""

    @property
    def mark(self) -> str:
        pass


def stand_ins(held: Iterable[str]) -> list[StandsIn]:
    """Return the person's deputyships, ordered by their end."""
    return sorted(map(_stands_in, (mark for mark in held if mark.startswith("for:"))), key=lambda one: one[1:])


def _stands_in(mark: str) -> StandsIn:
    _, queue, rest = mark.split(":", 2)
    until, _, whom = rest.partition("Z:")
    return StandsIn(queue, datetime.fromisoformat(f"{until}Z"), whom)


def roles(user: Any) -> frozenset[str]:
    """Return a user's roles, cached per user object; none if inactive or changed outside the application."""
    if user is None or not user.is_authenticated or not user.is_active:
        return frozenset()
    known = getattr(user, _CACHE, None)
    if known is None:
        from ledger.accounts import (
            is_authentic_account,
        )  # imported late: it needs the models, which load after this module

        held = user.groups.all() if is_authentic_account(user) else ()
        known = frozenset(group.name for group in held if is_role(group.name))
        setattr(user, _CACHE, known)
    return known


def know_roles(user: Any, groups: Iterable[str], marks: Iterable[Mark] = ()) -> None:
    """Cache the user's roles, and other entries (`Mark`), that were read together with the user."""
    held = [name for name in groups if is_role(name)]
    setattr(user, _CACHE, frozenset([*held, *(one.mark for one in marks if held)]))


def needs_factor(user: Any) -> bool:
    """Return whether the installation requires a second factor of this user."""
    wanted = settings.DURABLEAGENTS.second_factor_roles
    if not wanted or not user.is_authenticated:
        return False
    held = {*roles(user), *((STAFF,) if user.is_staff or user.is_superuser else ())}
    return any(fnmatchcase(role, pattern) for role in held for pattern in wanted)


def is_too_weak(user: Any, session: Mapping[str, Any]) -> bool:
    """Return whether a session lacks a required second factor; such a session authenticates nobody.

    This includes a factor required by a role that the user got after signing in.
    """
    return not session.get(HAS_FACTOR) and needs_factor(user)


def strength_of(request: HttpRequest | Request) -> str:
    if getattr(request, "auth", None) is not None:
        return "api_key"
    return str(getattr(request, "session", {}).get(STRENGTH, "session"))


def actor(request: HttpRequest | Request, role: str) -> Actor:
    """Return the actor of a request, as records name it. `role` is the role that allowed the act."""
    by_key = getattr(request, "auth", None) is not None
    session = {} if by_key else getattr(request, "session", {})
    proved_at = session.get(PROVED)
    return Actor(
        kind="key" if by_key else "user",
        name=request.user.get_username(),
        role=role,
        auth=strength_of(request),
        address=request.META.get("REMOTE_ADDR", ""),
        person=request.user.pk,
        proved_at=datetime.fromisoformat(proved_at) if isinstance(proved_at, str) else None,
        proved_by=str(session.get(PROVED_BY, "")),
    )


class HasRole(BasePermission):
    """Denies by default: a view lists the allowed roles by method (`roles = {"GET": (...), …}`).

    Methods that the view doesn't have are allowed, so that the response is a 405 instead of a misleading 403. The
    matching role becomes the view's `acting_role`.
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
        view.acting_role = role_in(declared.get(method, ()), held)
        return view.acting_role is not None
