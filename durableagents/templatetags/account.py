"""The demo's people, for one-click sign-in. Outside the demo there are none."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from django import template
from django.conf import settings
from django.contrib.auth.models import User

from durableagents.demo.cast import PEOPLE
from ledger.access import ROLES
from ledger.pages import ROLE_NAMES

register = template.Library()

_DOES = {
    "integrator": "starts runs and reads them",
    "operator": "starts, pauses, cancels, retries, settles unknown outcomes",
    "approver_finance": "decides purchase orders, stops what waits for them",
    "approver_legal": "decides sanctions matches, stops what waits for them",
    "auditor": "reads everything, changes nothing",
}


@dataclass(frozen=True, slots=True)
class Person:
    """One of the cast. `does` says what the role is for."""

    username: str
    label: str
    does: str


def people() -> list[Person]:
    """The cast's own accounts, by their names and as long as each holds its one role, in the order of the roles. Nobody outside the demo;
    and whoever else has an account signs in with a password there, too."""
    if not settings.DURABLEAGENTS.is_demo:
        return []
    found: dict[str, Person] = {}
    for user in User.objects.filter(is_active=True, is_superuser=False, is_staff=False, username__in=PEOPLE).prefetch_related("groups"):
        names = [group.name for group in user.groups.all() if group.name in ROLES]
        if names == [PEOPLE[user.username]]:
            found[names[0]] = Person(user.username, ROLE_NAMES[names[0]], _DOES[names[0]])
    return [found[role] for role in ROLES if role in found]


_SHOWN_SECONDS = 10.0
_shown: tuple[float, list[Person]] = (0.0, [])


@register.simple_tag
def demo_cast() -> list[Person]:
    """For the menu of every page, so it is read every ten seconds. Who may really sign in so is asked when somebody does."""
    global _shown
    if not settings.DURABLEAGENTS.is_demo:
        return []
    at, cast = _shown
    if not at or monotonic() - at > _SHOWN_SECONDS:
        cast = people()
        _shown = monotonic(), cast
    return cast
