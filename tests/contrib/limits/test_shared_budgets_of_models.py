"""Three runs and their shared pools against a model, with any actions in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from durableagents.contrib.limits import shared_budgets as acts
from durableagents.contrib.limits.budget_verify import check_shared_budgets
from durableagents.contrib.limits.models import BudgetPeriod, SharedBudget
from ledger import events as e
from ledger.verification.registers import verify_registers
from runs.engine.errors import SharedBudgetShort
from runs.engine.journal import WaitSpec
from runs.engine.steps.spending import debit
from runs.models import Wait
from runs.services import lifecycle
from tests.contrib.limits.budgets import begun_again, forgotten, let_in, meter, pool, raised
from tests.integration.runs.stage import Stage, now
from tests.tiers import of_a_machine
from tests.world import OLGA, SHOP, Toolbox, agent_of, ends_with
from tests.writing import intend, record

TAGS = (["a"], ["a", "b"], ["b"])


@dataclass
class Share:
    row: SharedBudget
    most: int
    tag: str
    used: int = 0
    reserved: int = 0
    is_on: bool = True
    is_gated: bool = False
    turns: int = 0
    line: list[Call] = field(default_factory=list)
    past: list[list[int]] = field(default_factory=list)  # used and reserved, of each past period

    def wants(self, call: Call) -> int:
        if self.tag and self.tag not in TAGS[call.run]:
            return 0
        return {"tokens_out": call.tokens, "model_calls": int(call.tokens > 0), "tool_calls": int(call.tokens == 0)}[
            str(self.row.resource)
        ]

    def refuses(self, call: Call) -> bool:
        wanted = self.wants(call) if self.is_on else 0
        is_behind = self.is_gated and self.row.pk not in call.let_in
        return wanted > 0 and (is_behind or self.used + self.reserved + wanted > self.most)

    def moves(self, turn: int, reserved: int, used: int) -> None:
        if turn < self.turns:
            self.past[turn][0] += used
            self.past[turn][1] += reserved
        else:
            self.used, self.reserved = self.used + used, self.reserved + reserved


@dataclass
class Call:
    """A request of this many tokens; with none, a tool call."""

    run: int
    slot: str
    tokens: int
    let_in: set[int] = field(default_factory=set)
    waited: int = 0
    took: dict[int, tuple[int, int]] = field(default_factory=dict)  # by pool: the period, and the reserved amount


class Machine(RuleBasedStateMachine):
    """Acts through the product's journal and services."""

    def __init__(self, stage: Stage, tools: Toolbox) -> None:
        super().__init__()
        self.stage, self.agent = stage, agent_of(ends_with(1), tools=tools.all())
        self.n = 0
        self.open: list[Call] = []
        self.waiting: list[Call] = []

    @initialize()
    def begin(self) -> None:
        for shared in SharedBudget.objects.filter(off_at__isnull=True):
            acts.switch_off(shared.pk, by=OLGA, justification="of the story before")
        self.shares = [
            Share(pool("tokens_out", 10), 10, ""),
            Share(pool("model_calls", 3, scope="tag", of="a"), 3, "a"),
            Share(pool("tool_calls", 2, scope="tag", of="b"), 2, "b"),
        ]
        self.runs = [lifecycle.start(self.agent.graph_id, {}, by=SHOP, tags=tags) for tags in TAGS]
        self.journals = {
            claimed.run_id: self.stage.journal(claimed)
            for claimed in self.stage.claim(limit=99, graphs=[self.agent.graph_id])
        }
        self.alive = [0, 1, 2]

    # --- what workers do

    def _intend(self, call: Call) -> None:
        """Begin a call as its worker does, if the model permits it."""
        first = next((share for share in self.shares if share.refuses(call)), None)
        event: e.Event = (
            e.ModelRouted(slot=call.slot, n=0, model="m:x", price=1, tokens_in=1, tokens_out=call.tokens, usd_micro=1)
            if call.tokens
            else e.ToolInvoked(
                slot=call.slot, tool="order", replay_class="pure", requested_hash="h", executed_hash="h", grant=None
            )
        )
        journal = self.journals[self.runs[call.run].id]
        try:
            self.stage.wait(intend(journal, [event]))
        except SharedBudgetShort as short:
            found = short.told
        else:
            assert first is None
            self._begun(call)
            return
        assert first is not None and found["pool"] == first.row.pk
        self._wait(call, first, found)

    def _begun(self, call: Call) -> None:
        for share in self.shares:
            if share.is_on and (wanted := share.wants(call)):
                call.took[share.row.pk] = share.turns, wanted
                share.moves(share.turns, *((0, wanted) if call.tokens == 0 else (wanted, 0)))
        if call.tokens:
            self.open.append(call)

    def _wait(self, call: Call, share: Share, told: dict[str, Any]) -> None:
        assert told["wanted"] == share.wants(call)
        spec = WaitSpec(str(self.runs[call.run].id), call.slot, 0, "pool", call.waited, now() + timedelta(days=9), told)
        self.stage.wait(record(self.journals[self.runs[call.run].id], [spec.opened()], wait=spec))
        call.waited += 1
        share.line.append(call)
        share.is_gated |= share.wants(call) <= share.most

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), tokens=st.integers(0, 12))
    def call(self, data: st.DataObject, tokens: int) -> None:
        self.n += 1
        self._intend(Call(data.draw(st.sampled_from(self.alive)), f"0.1/{self.n}", tokens))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def try_again(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(call)
        self._intend(call)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), used=st.integers(0, 15))
    def settle(self, data: st.DataObject, used: int) -> None:
        call = data.draw(st.sampled_from(self.open))
        self.open.remove(call)
        route = e.ModelRouted(
            slot=call.slot, n=0, model="m:x", price=1, tokens_in=1, tokens_out=call.tokens, usd_micro=1
        )
        found = debit(route, model_calls=int(used > 0), tokens_in=1, tokens_out=used, usd_micro=1)
        self.stage.wait(record(self.journals[self.runs[call.run].id], [found]))
        self._settled(call, {"tokens_out": used, "model_calls": int(used > 0)})

    def _settled(self, call: Call, used: dict[str, int] | None) -> None:
        for share in self.shares:
            if share.row.pk in call.took:
                turn, aside = call.took[share.row.pk]
                share.moves(turn, -aside, aside if used is None else used[str(share.row.resource)])

    @precondition(lambda self: len(self.alive) > 1)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """End a run whose requests reported no usage: the estimates count."""
        n = data.draw(st.sampled_from(self.alive))
        self.alive.remove(n)
        run = self.runs[n]
        self.stage.wait(self.journals[run.id].leave("end", [e.RunFailed(code="x")], state="failed", error="x"))
        for call in [call for call in self.open if call.run == n]:
            self.open.remove(call)
            self._settled(call, None)
        self.waiting = [call for call in self.waiting if call.run != n]
        for share in self.shares:
            share.line = [call for call in share.line if call.run != n]

    # --- what people and time do

    @rule(data=st.data(), most=st.integers(0, 15))
    def set_limit(self, data: st.DataObject, most: int) -> None:
        share = data.draw(st.sampled_from(self.shares))
        if share.is_on:
            raised(share.row, most)
            share.most = most
            share.is_gated |= bool(share.line)

    @precondition(lambda self: self.n % 5 == 4)
    @rule(data=st.data())
    def switch_off(self, data: st.DataObject) -> None:
        share = data.draw(st.sampled_from(self.shares))
        if share.is_on:
            acts.switch_off(share.row.pk, by=OLGA, justification="over")
            share.is_on, share.is_gated = False, share.is_gated or bool(share.line)

    @rule(data=st.data())
    def begin_again(self, data: st.DataObject) -> None:
        share = data.draw(st.sampled_from(self.shares))
        if share.is_on:
            begun_again(share.row)
            share.past.append([share.used, share.reserved])
            share.used = share.reserved = 0
            share.turns += 1
            self.sweep()

    @rule()
    def sweep(self) -> None:
        for share in self.shares:
            forgotten(share.row)
        let_in()
        for share in self.shares:
            if share.is_gated:
                self._let_in(share)

    def _let_in(self, share: Share) -> None:
        room = share.most - share.used - share.reserved
        for call in [call for call in share.line if not share.is_on or share.wants(call) <= share.most]:
            if share.is_on and share.wants(call) > room:
                break
            room -= share.wants(call)
            share.line.remove(call)
            call.let_in.add(share.row.pk)
            self.waiting.append(call)
        share.is_gated = any(not share.is_on or share.wants(call) <= share.most for call in share.line)

    # --- invariants ---

    @invariant()
    def they_agree(self) -> None:
        for share in self.shares:
            found = meter(share.row)
            assert (found.used, found.reserved, found.most) == (share.used, share.reserved, share.most)
            assert (found.is_on, found.gate_at is not None) == (share.is_on, share.is_gated)
            past = BudgetPeriod.objects.filter(budget=share.row).order_by("starts_at").values_list("used", "reserved")
            assert [list(row) for row in past] == share.past
            line = Wait.objects.filter(kind="pool", resolved_at=None, detail__pool=share.row.pk).order_by("opened_at")
            assert [wait.slot for wait in line] == [call.slot for call in share.line]
        pools = check_shared_budgets()
        assert pools is not None and pools.problems == []

    def teardown(self) -> None:
        assert [problem for each in verify_registers() for problem in each.problems] == []


def test_pools_are_what_the_model_says_whatever_is_done_to_them(stage: Stage, tools: Toolbox) -> None:
    run_state_machine_as_test(lambda: Machine(stage, tools), settings=of_a_machine(15, 2, steps=40))
