"""Several people decide one call: first as their schedule says, then in turn until it is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import Group, User

from approvals.models import Approval
from ledger.actors import Actor
from tests.system.crash.light.shown import Shown
from tests.system.crash.light.together import at_once

OPERATORS = ("settling-0", "settling-1")  # who settle unknown outcomes
HANDED = "handed-0"  # an operator, who decides what is delegated to them
PEOPLE = 6  # of each queue: four have manners of their own, the others approve
ROLES = {"legal": "approver_legal", "finance_po": "approver_finance"}


def put_people() -> None:
    for role in ROLES.values():
        group, _ = Group.objects.get_or_create(name=role)
        for n in range(PEOPLE):
            user, _ = User.objects.get_or_create(username=f"{role}-{n}")
            user.groups.add(group)
    for name in OPERATORS:
        user, _ = User.objects.get_or_create(username=name, defaults={"is_superuser": True, "is_staff": True})
        user.groups.add(Group.objects.get_or_create(name="operator")[0])
    handed, _ = User.objects.get_or_create(username=HANDED)
    handed.groups.add(Group.objects.get_or_create(name="operator")[0])


def account(name: str, role: str) -> Actor:
    person = User.objects.values_list("pk", flat=True).get(username=name)
    return Actor("user", name, role=role, auth="session", address="192.0.2.9", person=person)


class Voters:
    def __init__(self, words: tuple[tuple[str, ...], ...], shown: Shown) -> None:
        self._words, self._shown = list(words), shown
        self._turns: dict[Any, int] = {}

    def act(self, approval: Approval) -> bool:
        """Send one burst of votes on an open question."""
        if self._words:
            items = [word.split(":") for word in self._words.pop(0)]
        else:
            turn = self._turns[approval.pk] = self._turns.get(approval.pk, -1) + 1
            items = [["user", str((PEOPLE - 1 - turn) % PEOPLE), "approve"]]
        at_once([self._word(approval, kind, int(n), verdict) for kind, n, verdict in items])
        return True

    def _word(self, approval: Approval, kind: str, n: int, verdict: str) -> Callable[[], Any]:
        role = ROLES[approval.queue]
        person = User.objects.values_list("pk", flat=True).get(username=f"{role}-{n}")
        name = f"{role}-{n}" if kind == "user" else f"laptop-{n}"
        by = Actor(kind, name, role=role, auth="session", address="192.0.2.9", person=person)
        return self._shown.word(approval, verdict, by, "whole" if kind == "user" else "key")
