"""One person's verdict on a call, and its withdrawal: a part of test_model.py's machine. Changes only the journal."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from django.contrib.auth.models import Group, User
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.setting import GuardsBody
from ledger.actors import Actor
from runs.models import Wait
from runs.services import reconciling
from runs.services.settling import agreeing
from tests.integration.runs.spender import WHY, Spender, now_and_then

SHELL = Actor("os", "root", role="admin", auth="shell")


def operator(name: str) -> Actor:
    user, _ = User.objects.get_or_create(username=name, defaults={"is_staff": True, "is_superuser": True})
    user.groups.add(Group.objects.get_or_create(name="operator")[0])
    return Actor("user", name, role="operator", auth="session", person=user.pk)


def require(*families: str) -> None:
    guards.require(GuardsBody(families=list(families), justification=WHY), by=SHELL)


class Sayer(Spender):
    """Proposes a new receipt each time, so that no verdict agrees with an earlier one."""

    said = 0

    @precondition(lambda self: "reconcile" in self.model.waits and now_and_then(self))
    @rule(is_back=st.booleans())
    def say(self, is_back: bool) -> None:
        first, _ = operator("first"), operator("second")
        self.said += 1
        (wait,) = Wait.objects.filter(run=self.run, kind="reconcile", resolved_at=None)
        saying = partial(
            reconciling.reconcile,
            self.run.id,
            wait_id=wait.pk,  # needed if another call's outcome was unknown before
            verdict="happened",
            receipt={"ref": f"seen {self.said}"},
            justification=WHY,
            by=first,
        )
        require("outcomes", "roles")
        try:
            self.is_done(saying, not self.model.is_owned)
        finally:
            require()
        if not self.model.is_owned:
            self.model.tells("OutcomeProposed")
            if is_back:
                self._take_back(wait.pk, first)

    def _take_back(self, wait_id: UUID, by: Actor) -> None:
        agreeing.take_back(self.run.id, wait_id, justification=WHY, by=by)
        self.model.tells("OutcomeWithdrawn")
