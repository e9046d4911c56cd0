"""Who asks, and in which role they may. Shared by the API and the console of every app, hence down here.

Roles are Django groups with exactly these names: the product's own three, and those that decide queues, which are all
that are called `approver_…` and whatever else is in charge of one. Being a superuser grants none of them: nobody
decides a gate or steers a run without the role being on the record.
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
# In what a view declares: every role that decides queues. Which roles do is data, so no view can list them.
APPROVER = "approver_*"
EVERY = (INTEGRATOR, OPERATOR, APPROVER, AUDITOR)
# Who did what, and who may: for everybody who answers for it. A program that starts runs has no need to know.
READS_AUDIT = (OPERATOR, APPROVER, AUDITOR)
# The roles that `migrate` makes: the product's own, and those that the settings name for the installation's first
# queues.
ROLES = (INTEGRATOR, OPERATOR, *dict.fromkeys(settings.DURABLEAGENTS_QUEUES.values()), AUDITOR)

_CACHE = "_durableagents_roles"
# What a session keeps of how its person signed in: `session`, with `+sso` and `+totp`, `+recovery_code` or `+passkey`,
# and whether that was with a second factor.
STRENGTH, HAS_FACTOR = "signed_in_with", "has_second_factor"
# When its person last showed who they are (by the database's clock), and with what.
PROVED, PROVED_BY = "proved_at", "proved_by"
# In the setting beside the roles: whoever may open the administration.
STAFF = "staff"
_APPROVER = re.compile(r"approver_[a-z0-9_]+", re.ASCII)
# Roles that decide a queue under other names: those of the settings, always, and of queues that are older than they, as
# they were read last.
_OF_SETTINGS = frozenset(ROLES) - FIXED
_named: frozenset[str] = _OF_SETTINGS


def is_approver(role: str) -> bool:
    return role in _named or _APPROVER.fullmatch(role) is not None


def is_role(name: str) -> bool:
    return name in FIXED or is_approver(name)


def learn_roles(names: Iterable[str]) -> None:
    """The roles that are in charge of queues now, from whoever has read them: of rows that our processes wrote. What
    was one before, and is none of them, is a role no more."""
    global _named
    _named = _OF_SETTINGS | (frozenset(filter(None, names)) - FIXED)


def role_in(declared: Iterable[str], held: Iterable[str]) -> str | None:
    """The first of the declared roles that somebody holds; None if they hold none of them."""
    held = frozenset(held)
    for role in declared:
        found = role if role in held else None
        if role == APPROVER:
            found = min((each for each in held if is_approver(each)), default=None)
        if found is not None:
            return found
    return None


def ordered(held: Iterable[str]) -> list[str]:
    """Roles as lists show them: the integrator first, the auditor last."""
    held = [role for role in held if is_role(role)]
    own = (INTEGRATOR, OPERATOR), (AUDITOR,)
    return [role for some in (own[0], sorted(set(held) - FIXED), own[1]) for role in some if role in held]


def name_of(role: str) -> str:
    """A role as people read it: `approver_refunds` is the Refunds approver. What is no role stays as it is."""
    if role == APPROVER:
        return "Approver"
    if not is_role(role):
        return role
    of, _, what = role.partition("_")
    words = f"{what} {of}" if what and of == "approver" else role
    return words.replace("_", " ").capitalize()


class StandsIn(NamedTuple):
    """What somebody holds besides roles: they decide at this queue for somebody else, until then."""

    queue: str
    until: datetime
    whom: str

    @property
    def mark(self) -> str:
        """How it stands among what somebody holds: a text that is no role, so it opens no door by itself."""
        return f"for:{self.queue}:{self.until.isoformat()}:{self.whom}".replace("+00:00", "Z")


class OwnCase(NamedTuple):
    """One case that is somebody's whatever roles they hold: it was handed to them to `decide` it in the place of
    `whom`, or `whom` has `asked` them about it, which they may have `answered`."""

    approval_id: UUID
    what: str
    whom: str

    @property
    def mark(self) -> str:
        """As above: a text that is no role."""
        return f"case:{self.approval_id}:{self.what}:{self.whom}"

    @property
    def waits(self) -> bool:
        return self.what != "answered"


class OwnLimit(NamedTuple):
    """The most that one reader may approve at a queue, by their role or on behalf of another person. `needs_amount`:
    a case that names no amount is above it too."""

    queue: str
    most: Decimal
    currency: str
    needs_amount: bool

    @property
    def mark(self) -> str:
        return f"limit:{self.queue}:{self.most:f}:{self.currency}:{int(self.needs_amount)}"


def own_limits(held: Iterable[str]) -> dict[str, OwnLimit]:
    """Return the reader's limits by queue; a queue that is missing has none for them."""
    parts = (mark.split(":") for mark in held if mark.startswith("limit:"))
    return {queue: OwnLimit(queue, Decimal(most), currency, needs == "1") for _, queue, most, currency, needs in parts}


def own_cases(held: Iterable[str]) -> list[OwnCase]:
    """The single cases that are somebody's."""
    parts = (mark.split(":", 3) for mark in held if mark.startswith("case:"))
    return [OwnCase(UUID(case), what, whom) for _, case, what, whom in parts]


def decides_case(held: Iterable[str], approval_id: UUID) -> bool:
    return any(mark.startswith(f"case:{approval_id}:decide:") for mark in held)


def has_case(held: Iterable[str], approval_id: UUID) -> bool:
    return any(mark.startswith(f"case:{approval_id}:") for mark in held)


class Mark(Protocol):
    """What stands among somebody's roles and is none."""

    @property
    def mark(self) -> str:
        """The text."""


def stand_ins(held: Iterable[str]) -> list[StandsIn]:
    """For whom somebody decides besides themselves, and where; soonest over first."""
    return sorted(map(_stands_in, (mark for mark in held if mark.startswith("for:"))), key=lambda one: one[1:])


def _stands_in(mark: str) -> StandsIn:
    _, queue, rest = mark.split(":", 2)
    until, _, whom = rest.partition("Z:")
    return StandsIn(queue, datetime.fromisoformat(f"{until}Z"), whom)


def roles(user: Any) -> frozenset[str]:
    """Return the roles of a user, read once per user object. Nobody has any of an account that is inactive, or that was
    changed outside the application."""
    if user is None or not user.is_authenticated or not user.is_active:
        return frozenset()
    known = getattr(user, _CACHE, None)
    if known is None:
        from ledger.accounts import is_authentic_account  # needs the models, and this module is read before them

        held = user.groups.all() if is_authentic_account(user) else ()
        known = frozenset(group.name for group in held if is_role(group.name))
        setattr(user, _CACHE, known)
    return known


def know_roles(user: Any, groups: Iterable[str], stands: Iterable[Mark] = ()) -> None:
    """The names of a user's groups, and for whom they stand in, from whoever has read them together with the user."""
    held = [name for name in groups if is_role(name)]
    setattr(user, _CACHE, frozenset([*held, *(one.mark for one in stands if held)]))


def needs_factor(user: Any) -> bool:
    """Whether the installation asks a second factor of somebody with these roles."""
    wanted = settings.DURABLEAGENTS.second_factor_roles
    if not wanted or not user.is_authenticated:
        return False
    held = {*roles(user), *((STAFF,) if user.is_staff or user.is_superuser else ())}
    return any(fnmatchcase(role, pattern) for role in held for pattern in wanted)


def is_too_weak(user: Any, session: Mapping[str, Any]) -> bool:
    """Whether a session was begun without the second factor that its person needs: it is nobody's then, on every page,
    call and socket, until they sign in anew. Also where the role came later than the session."""
    return not session.get(HAS_FACTOR) and needs_factor(user)


def strength_of(request: HttpRequest | Request) -> str:
    if getattr(request, "auth", None) is not None:
        return "api_key"
    return str(getattr(request, "session", {}).get(STRENGTH, "session"))


def actor(request: HttpRequest | Request, role: str) -> Actor:
    """Whom a record names for this request. `role` is the role under which the act was allowed."""
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
        view.acting_role = role_in(declared.get(method, ()), held)
        return view.acting_role is not None
