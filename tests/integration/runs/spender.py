"""A run's budget on the real database and the model: a part of test_model.py's machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from ledger import events as e
from ledger.errors import IllegalTransition
from runs.engine.budget import A_CALL, Breach, Budget
from runs.engine.journal import WaitSpec
from runs.engine.steps.spending import lacking, lost
from runs.journal.postgres import PgJournal
from runs.models import Run, Wait
from runs.services.budgets import raising
from runs.workers import timers
from tests.integration.runs.model import Model
from tests.integration.runs.stage import Stage, head, now
from tests.world import OLGA
from tests.writing import intend, record

WHY = "the model says so"


def owned(machine: Spender) -> bool:
    return machine.model.is_owned


def now_and_then(machine: Spender) -> bool:
    """Return True now and then: rules that cut a run short must be rare, or no run gets anywhere."""
    return len(machine.model.kinds) % 3 == 0


class Spender(RuleBasedStateMachine):
    """A run and its model, and the actions on their budget."""

    stage: Stage
    run: Run
    model: Model
    journal: PgJournal
    n: int

    def next_slot(self) -> str:
        self.n += 1
        return f"{self.model.slots}.{self.model.visit}/{self.n}"

    def spec(self, kind: str, slot: str, **more: Any) -> WaitSpec:
        return WaitSpec(
            str(self.run.id), slot, 0, kind, 0, now() + timedelta(hours=1), {"tool": self.model.tool}, **more
        )

    def write(self, writing: Any) -> Any:
        return self.stage.wait(writing)

    def is_done(self, act: Any, by_model: bool) -> None:
        """Assert that the service accepts an act exactly if the model does."""
        try:
            act()
        except IllegalTransition:
            assert not by_model
        else:
            assert by_model

    # --- its worker

    @precondition(lambda self: owned(self) and not self.model.is_routed)
    @rule()
    def ask_model(self) -> None:
        slot, model = self.next_slot(), self.model
        self.routed = e.ModelRouted(slot=slot, n=0, model="m", price=1, tokens_in=1, tokens_out=1, usd_micro=7)
        model_requested = e.ModelRequested(
            slot=slot, conversation=slot, turn=0, model="mind", request_hash="h", payload=[]
        )
        reply = self.write(intend(self.journal, [model_requested, self.routed]))
        assert reply.is_done is not (model.wants_pause or model.wants_cancel)
        if reply.is_done:
            model.is_routed = True
            model.tells("ModelRequested", "ModelRouted")

    @precondition(lambda self: owned(self) and self.model.is_routed)
    @rule()
    def debit(self) -> None:
        before = head(self.run).usd_micro
        self.write(record(self.journal, [lost(self.routed)]))
        assert head(self.run).usd_micro == before + 7
        self.model.is_routed = False
        self.model.tells("BudgetDebited")

    @precondition(lambda self: owned(self) and self.model.is_broke and "budget" not in self.model.waits)
    @rule()
    def come_to_the_cap(self) -> None:
        model, detail = self.model, lacking([Breach("tool_calls", 0, 0, 0, 1)], A_CALL)
        wait = replace(self.spec("budget", self.next_slot()), detail=detail)
        over = e.BudgetExceeded(resource="tool_calls", most=0, used=0, reserved=0, wanted=1)
        self.write(record(self.journal, [over, wait.opened()], wait=wait))
        model.waits.append("budget")
        model.asks_for = "cap"
        model.tells("BudgetExceeded", "WaitOpened")
        paused = e.RunPaused(by="budget")
        reply = self.write(self.journal.leave("budget", [paused], state="paused", waits=[wait.id]))
        assert reply.is_done is not (model.wants_pause or model.wants_cancel)
        if reply.is_done:
            model.let_go("paused", "RunPaused", woken=True)

    # --- people and time

    @precondition(now_and_then)
    @rule(most=st.sampled_from([0, 1_000, None]), has_time=st.booleans())
    def set_budget(self, most: int | None, has_time: bool) -> None:
        """Raise the budget; too little, or another cap than asked for, keeps the question open."""
        budget = Budget(tool_calls=most, **({"wall_seconds": None} if has_time else {}))
        setting = partial(raising.set_budget, self.run.id, budget, by=OLGA, justification=WHY)
        up = Run.objects.get(pk=self.run.pk).time_up_at
        is_late = up is not None and up <= now() and not has_time
        self.is_done(setting, self.model.set_budget(most == 0, has_time=has_time, is_late=is_late))

    @precondition(lambda self: "budget" in self.model.waits)
    @rule()
    def raise_it(self) -> None:
        self.set_budget(1_000, has_time=True)

    @precondition(lambda self: now_and_then(self) and not self.model.is_undoing)
    @rule()
    def let_its_time_pass(self) -> None:
        Run.objects.filter(pk=self.run.pk).update(time_up_at=now() - timedelta(seconds=1))
        for _ in range(2):
            timers.ask_for_time()
        self.model.time_is_up()

    @precondition(lambda self: "budget" in self.model.waits and now_and_then(self) and not self.model.is_contradicted)
    @rule()
    def raise_nothing(self) -> None:
        rows = Wait.objects.filter(run=self.run, kind="budget", resolved_at=None)
        rows.update(deadline=now() - timedelta(seconds=1))
        for _ in range(2):
            timers.sweep()
        self.model.is_given_up()
