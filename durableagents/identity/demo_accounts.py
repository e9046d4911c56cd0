"""The demo's accounts that can be used with one click. There are none outside the demo."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from django.conf import settings
from django.contrib.auth.models import User

from ledger.web.roles import is_role, name_of, ordered


@dataclass(frozen=True, slots=True)
class Person:
    """A person of the demo. `does` describes the person's role."""

    username: str
    label: str
    does: str


def people() -> list[Person]:
    """Return the demo's accounts that have exactly their role, ordered by role. There are none outside the demo.

    Other accounts sign in with a password, even in the demo.
    """
    if not settings.DURABLEAGENTS.is_demo:
        return []
    found: dict[str, Person] = {}
    for user in User.objects.filter(
        is_active=True, is_superuser=False, is_staff=False, username__in=settings.DURABLEAGENTS_PEOPLE
    ).prefetch_related("groups"):
        names = [group.name for group in user.groups.all() if is_role(group.name)]
        known = settings.DURABLEAGENTS_PEOPLE[user.username]
        if names == [known.role]:
            found[user.username] = Person(user.username, known.label or name_of(known.role), known.does)
    roles = ordered({known.role for known in settings.DURABLEAGENTS_PEOPLE.values()})
    return [
        found[name]
        for role in roles
        for name, known in settings.DURABLEAGENTS_PEOPLE.items()
        if known.role == role and name in found
    ]


_SHOWN_SECONDS = 10.0
_shown: tuple[float, list[Person]] = (0.0, [])


def demo_accounts() -> list[Person]:
    """Return the demo's accounts for the menu of every page, cached for ten seconds. Sign-in checks them again."""
    global _shown
    if not settings.DURABLEAGENTS.is_demo:
        return []
    at, cast = _shown
    if not at or monotonic() - at > _SHOWN_SECONDS:
        cast = people()
        _shown = monotonic(), cast
    return cast
