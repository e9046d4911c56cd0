"""Operators who settle unknown outcomes: one, or two where two are required, in several orders."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.setting import GuardsBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, IllegalTransition
from runs.models import Wait
from runs.services import reconciling
from runs.services.settling import agreeing, senders
from tests.system.crash.light.together import at_once
from tests.system.crash.light.votes import OPERATORS, account

WHY = "The schedule says so."
SHELL = Actor("os", "crash", role="admin", auth="shell")


class Settling:
    """One schedule's operators, who tell the truth as far as they know it."""

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(f"light settling {seed}")
        self._ways: dict[UUID, str] = {}
        # All lanes share the database: rules may change during other schedules.
        with suppress(DurableAgentsError):
            families = self._dice.choice(([], ["outcomes", "roles"], ["outcomes", "roles"]))
            guards.require(GuardsBody(families=families, justification=WHY), by=SHELL)

    def asks_first(self, run_id: str, wait_id: UUID) -> bool:
        """Return True and ask the system first, if that is this call's manner."""
        if wait_id in self._ways:
            return False
        self._ways[wait_id] = self._dice.choice(("plain", "plain", "at_once", "back", "ask", "ask"))
        if self._ways[wait_id] != "ask":
            return False
        try:
            senders.ask(UUID(run_id), wait_id, justification=WHY, by=account(OPERATORS[0], "operator"))
        except IllegalTransition:  # its worker is parking it, or its tool has no hook
            return False
        return True

    def say(self, run_id: str, wait_id: UUID, verdict: str, receipt: Any) -> bool:
        """Settle a call; return whether it is settled. Raises IllegalTransition."""
        first, second = (account(name, "operator") for name in OPERATORS)
        speak = partial(
            reconciling.reconcile, UUID(run_id), verdict=verdict, receipt=receipt, justification=WHY, wait_id=wait_id
        )
        way = self._ways.get(wait_id, "plain")
        if way == "at_once":
            self._ways[wait_id] = "plain"
            at_once([partial(speak, by=by) for by in (first, second, first)])
            return Wait.objects.filter(pk=wait_id, resolution=verdict).exists()
        for by in (first, second):
            with suppress(agreeing.AlreadySaid):
                if speak(by=by) is None:
                    return True
                if way == "back" and by is first:
                    self._ways[wait_id] = "plain"
                    agreeing.take_back(UUID(run_id), wait_id, justification=WHY, by=by)
                    speak(by=by)
        return False
